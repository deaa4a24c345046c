// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/identity"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/agent/source"
)

// identity is how this host's identity is got and kept.
func (d *deps) identity(s config.Settings, dir *disk.Directory) identity.Options {
	i := s.Identity
	return identity.Options{Node: d.node(s), Lifetime: i.Lifetime, Dir: dir, Bootstrap: d.privileged(s),
		Pins: s.Pins, FollowHint: s.FollowHint, Credential: systemdCredential(), Trail: d.trail,
		Times: identity.Times{PollInterval: i.PollInterval, IdlePollInterval: i.IdlePollInterval,
			ApprovalPollMax: i.ApprovalPollMax, CheckInterval: i.CheckInterval,
			SuspectAfter: i.SuspectAfter, DeniedMin: i.DeniedMin, DeniedMax: i.DeniedMax}}
}

// systemdCredential is the credential bootstrap-kubeconfig of systemd.exec(5) LoadCredential=, if there is one.
func systemdCredential() secret.Bytes {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	if dir == "" {
		return secret.Bytes{}
	}
	f, err := os.Open(filepath.Join(dir, "bootstrap-kubeconfig")) //nolint:gosec // systemd sets it
	if err != nil {
		return secret.Bytes{}
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return secret.Bytes{}
	}
	return secret.New(b)
}

// storedIdentity is the identity that the service of this node keeps, to look with and not to be changed. If there is
// none, the error is source.ErrNoIdentity.
func (d *deps) storedIdentity(node string) (*apiserver.Conn, error) {
	dir, err := d.tree.Directory(stateDir)
	var id *apiserver.Conn
	if err == nil {
		id, err = identity.Load(dir, node)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, source.ErrNoIdentity
	}
	return id, err
}

// apiConn is as whom the service speaks to the API server, without changing anything.
func (d *deps) apiConn(kubeconfig, node string) (*apiserver.Conn, error) {
	if kubeconfig != "" {
		return apiserver.FromKubeconfig(kubeconfig)
	}
	return d.storedIdentity(node)
}
