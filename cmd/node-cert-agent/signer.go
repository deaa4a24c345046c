// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/replace"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

func signerCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "signer",
		Short: "Look at the certificates of a control plane, and renew them for root (started by systemd)",
		Long: `signer is the process that has the keys of a control plane: it has no network and no bus. Over a local
socket it tells node-cert-agent-renew.service which certificates there are, and renews one when root asks for it. It
takes no path from anybody: what it looks at is in the flags of the components that root's own files start.
It ends when nobody has asked for anything for a while.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.plain() {
				return process.Misused(errors.New("--root: in plain mode there is no second process"))
			}
			ln, admitted, err := socketFor(renewUser)
			if err != nil {
				return err
			}
			defer func() { _ = ln.Close() }()
			policy := &configCache[signer.Policy]{options: f.configOptions(), from: func(s config.Settings) signer.Policy {
				return signer.Policy{Policy: renewalPolicy(s), Lifetime: s.Renewal.Lifetime, ReuseKey: s.Renewal.ReuseKey,
					Restart: s.Renewal.Restart}
			}}
			s := signer.Signer{Host: inspect.Host{Root: "/", Proc: "/proc"}, Load: policy.load, Now: time.Now,
				Terminate: signer.Terminate, Random: rand.Reader}
			if p, err := policy.load(); err == nil && p.Mode != pair.ModeReport {
				if s.Replacer, s.State, err = openReplacer(); err != nil {
					return err
				}
				defer s.Replacer.Close()
				s.Blocked = recoverPairs(s, c.ErrOrStderr())
			}
			return signer.Serve(c.Context(), ln, s, admitted, c.ErrOrStderr())
		},
	}
}

func openReplacer() (*replace.Replacer, *disk.Directory, error) {
	tree, err := disk.Open("/")
	if err != nil {
		return nil, nil, err
	}
	state, err := tree.Directory(signerDir)
	if err != nil {
		return nil, nil, err
	}
	r, err := replace.Open(tree, state)
	return r, state, err
}

// recoverPairs finishes what a signer that was killed began, and says why it cannot.
func recoverPairs(s signer.Signer, log io.Writer) (blocked string) {
	var pairs []replace.Pair
	seen, err := s.Host.Inspect()
	for _, f := range seen.Pairs {
		if f.Problem == "" && f.Foreign == "" && f.Manager == "" {
			pairs = append(pairs, signer.FilesOf(f))
		}
	}
	var status replace.Status
	if err == nil {
		status, err = s.Replacer.Recover(pairs...)
	}
	if err != nil {
		fmt.Fprintf(log, "<3>signer cannot recover: %v\n", err)
		return err.Error()
	}
	if status.Blocked != "" {
		fmt.Fprintf(log, "<4>signer cannot tell: pair=%q %s\n", status.Pair.ID, status.Blocked)
	}
	return status.Blocked
}
