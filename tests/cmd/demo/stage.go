// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// stage is where the story plays: a control plane, and a host or a folder in its place.
type stage interface {
	plane() *controlplane.Plane
	store() controllerconfig.Store
	// units tells whether there is a systemd.
	units() bool
	// approverBinary is the file of node-cert-controller.
	approverBinary() string
	// putToken gives the host its token.
	putToken() error
	// startAgent is printed as the command line that it returns.
	startAgent(ctx context.Context) (command string, err error)
	// name is how commands of the stage name a file of the host, and path how this process does.
	name(file string) string
	path(file string) string
	// sh runs a shell command of the host and returns what it printed, to either output.
	sh(ctx context.Context, command string) (string, error)
	// sync returns when every record sent so far can be read.
	sync(ctx context.Context) error
	// status, records and record are shell commands: the agent's status; all audit records, a line
	// each; the newest of one kind.
	status() string
	records() string
	record(k audit.Kind, detailed bool) string
	// visit says how a person gets there while the stage is kept.
	visit() string
	stop() error
}

// site is the configuration of the host: what differs from the profile on a Debian with one service
// on the allowlist, and a hold that is short enough to be waited for.
const site = `apiVersion: config.node-cert-agent.io/v1alpha1
files:
  kubeAPIServerServingCAData:
    onChange: [` + cluster.Reader + `]
  additionalTrustBundle:
    path: /usr/local/share/ca-certificates/{sha256}.crt
units:
  ` + cluster.Reader + `:
    verb: reload
trust:
  holdRemovals: 2s
`

// onHost is a stage with a real systemd.
type onHost struct {
	*cluster.Cluster
	dir string // of the approver's binary
}

func setHost(ctx context.Context, t *transcript) (stage, error) {
	t.say("This is the main job of node-cert-agent on real parts: a Kubernetes control plane, and a host with")
	t.say("systemd in a container. Lines that begin with \"$ \" are commands, run on that host; \"cluster$ \" is its")
	t.say("administrator elsewhere.")
	t.say("It takes less than a minute, once etcd, Kubernetes and the host's root file system have been made.")
	t.chapter("A cluster and a host")
	h := &onHost{}
	var err error
	if h.dir, err = os.MkdirTemp("", "node-cert-agent-demo-"); err != nil {
		return nil, err
	}
	built := make(chan error, 1)
	go func() { built <- cluster.Build(ctx, h.approverBinary()) }()
	h.Cluster, err = cluster.Start(ctx, cluster.Options{Config: site, Bootstrap: true, Shipped: true, Progress: t})
	if err = errors.Join(<-built, err); err != nil {
		return nil, errors.Join(fmt.Errorf("setting the stage: %w\n(go run ./tests/cmd/demo -plain needs neither root nor a host)", err), h.stop())
	}
	return h, nil
}

func (h *onHost) plane() *controlplane.Plane    { return h.Plane }
func (h *onHost) store() controllerconfig.Store { return h.Store }
func (h *onHost) units() bool                   { return true }
func (h *onHost) name(file string) string       { return file }
func (h *onHost) path(file string) string       { return h.Host.Path(file) }
func (h *onHost) approverBinary() string        { return filepath.Join(h.dir, "node-cert-controller") }
func (h *onHost) putToken() error               { return h.PutToken("10-"+token, token) }

func (h *onHost) stop() error {
	var err error
	if h.Cluster != nil {
		err = h.Stop()
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}

func (h *onHost) startAgent(ctx context.Context) (string, error) {
	return "systemctl start " + strings.Join([]string{cluster.Reader, cluster.Unlisted, "node-cert-agent.service"}, " "),
		h.StartAgent(ctx)
}

func (h *onHost) sh(ctx context.Context, command string) (string, error) {
	out, err := h.Host.Run(ctx, "sh", "-c", command)
	if failed, ok := errors.AsType[*host.ExitError](err); ok {
		return out + failed.Stderr, err
	}
	return out, err
}

func (h *onHost) sync(ctx context.Context) error {
	_, err := h.sh(ctx, "journalctl --sync")
	return err
}

func (h *onHost) status() string { return "node-cert-agent status" }

func (h *onHost) records() string { return "journalctl _SYSTEMD_UNIT=node-cert-agent.service -o cat" }

func (h *onHost) record(k audit.Kind, detailed bool) string {
	command := fmt.Sprintf("journalctl _SYSTEMD_UNIT=node-cert-agent.service MESSAGE_ID=%s -n 1 -q ", k.ID)
	if detailed {
		return command + "-o verbose | grep -E 'MESSAGE|NODECERT|_UID' | sort"
	}
	return command + "-o cat"
}

func (h *onHost) visit() string {
	var pid int
	_, _ = fmt.Sscanf(h.Host.Path("/"), "/proc/%d/root", &pid) // a booted host has one
	return fmt.Sprintf(`A shell on the host:

    nsenter --target %d --all -- env -i HOME=/root TERM=$TERM PATH=/usr/sbin:/usr/bin bash

What to look at there:

    node-cert-agent status
    journalctl -f -u node-cert-agent -u node-cert-agent-writer
    systemctl status node-cert-agent node-cert-agent-writer`, pid)
}
