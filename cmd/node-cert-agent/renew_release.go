// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
	"github.com/node-cert-agent/node-cert-agent/renew"
	"github.com/node-cert-agent/node-cert-agent/renew/lock"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

var errNotShared = errors.New("only a host with renewal.mode renew knows the lock")

func renewReleaseCommand(f *flags) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "release [HOST]",
		Short: "Show which host holds the lock of renewals, or free it from one that will not",
		Long: `release prints who holds the lock in etcd, under which one host at a time renews its certificates. With the
name of that host and a reason it frees the lock. Look at the host first: node-cert-agent renew says there
why it holds the lock. If it works at this moment, two hosts may.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, hosts []string) error {
			return f.configured(func(c *cobra.Command, s config.Settings) error {
				if (len(hosts) == 0) != (reason == "") {
					return process.Misused(errors.New("HOST and --reason go together"))
				}
				return f.release(c, s, hosts, reason)
			})(c, nil)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why the host will not free it, for the record in etcd")
	return cmd
}

// release asks etcd as nobody who matters, with the signer's signature.
func (f *flags) release(c *cobra.Command, s config.Settings, hosts []string, reason string) error {
	switch {
	case f.plain():
		return process.Misused(errors.New("--root: in plain mode there is no signer to ask"))
	case renewalPolicy(s).Mode != pair.ModeRenew:
		return errNotShared
	case os.Geteuid() != 0 && f.become == nil:
		return errNotRoot
	}
	client := signer.Dial(signerSocket)
	defer func() { _ = client.Close() }()
	if _, err := client.Inspect(c.Context()); err != nil {
		return err
	}
	if err := f.becomeUserOf(renewUser); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	cluster, err := renew.ConnectWith(ctx, client)
	if err != nil {
		return err
	}
	defer cluster.Close()
	h, err := lock.Look(ctx, cluster)
	switch {
	case err != nil:
		return err
	case h == nil:
		fmt.Fprintln(c.OutOrStdout(), "nobody holds the lock")
		return nil
	case len(hosts) == 0:
		fmt.Fprintln(c.OutOrStdout(), (&lock.HeldError{Holder: *h}).Error())
		return nil
	case h.Host != hosts[0] && !h.Unreadable:
		return fmt.Errorf("the lock is held by %s, not by %s", printable.Text(h.Host), printable.Text(hosts[0]))
	}
	by := os.Getenv("SUDO_USER")
	if by == "" {
		by = "root"
	}
	return lock.Release{By: by, Reason: reason, At: time.Now().UTC()}.Apply(ctx, cluster, *h)
}
