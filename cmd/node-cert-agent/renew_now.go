// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/probe"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
	"github.com/node-cert-agent/node-cert-agent/renew"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

var (
	errOnlyReports = errors.New("this host only reports: set renewal.mode to manual in /etc/node-cert-agent/config.d " +
		"to have pairs renewed by this command")
	errRenewsItself = errors.New("renewal.mode is renew: the service renews what is due, one host at a time; " +
		"--force renews beside it")
	errNotRoot = errors.New("only root may have pairs renewed")
)

type renewNowOptions struct {
	output                 format
	dryRun, force, abandon bool
	restart                bool
}

func renewNowCommand(f *flags) *cobra.Command {
	var o renewNowOptions
	cmd := &cobra.Command{
		Use:   "now [PAIR...]",
		Short: "Renew certificates of a control plane, one after the other",
		Long: `now renews the pairs with these names, or all that are due. Each gets a successor with the same subject and the
same extensions. The command then asks the servers of this host whether they serve it, or accept it from a
client. If they do not, the pair that there was before is restored, and the command ends.

It is for root, where renewal.mode is manual. Run it on one host at a time.

Exit codes beside the usual: 3 with --dry-run: something would be renewed.`,
		RunE: func(c *cobra.Command, names []string) error {
			return f.configured(func(c *cobra.Command, s config.Settings) error {
				return f.renewNow(c, s, o, names)
			})(c, nil)
		},
	}
	o.output.flag(cmd)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would be renewed, and change nothing")
	cmd.Flags().BoolVar(&o.force, "force", false, "renew what is not due as well")
	cmd.Flags().BoolVar(&o.restart, "restart", false,
		"end the static pods' processes that use a pair as it was when they started; the kubelet starts them again")
	cmd.Flags().BoolVar(&o.abandon, "abandon", false,
		"leave a pair that waits for proof as somebody else made it meanwhile, and renew nothing")
	return cmd
}

// renewNow asks the signer as root, and everybody else as nobody who matters: the signer knows whom it speaks to from
// when the connection was made.
func (f *flags) renewNow(c *cobra.Command, s config.Settings, o renewNowOptions, names []string) error {
	policy := renewalPolicy(s)
	switch {
	case f.plain():
		return process.Misused(errors.New("--root: in plain mode there is no signer to ask"))
	case policy.Mode == pair.ModeReport:
		return errOnlyReports
	case policy.Mode == pair.ModeRenew && !o.force && !o.dryRun && !o.abandon:
		return errRenewsItself
	case os.Geteuid() != 0 && f.become == nil:
		return errNotRoot
	}
	client := signer.Dial(signerSocket)
	defer func() { _ = client.Close() }()
	seen, err := client.Inspect(c.Context())
	if err != nil {
		return err
	}
	if o.abandon {
		return client.Abandon(c.Context(), seen.Waiting)
	}
	if err := f.becomeUserOf(renewUser); err != nil {
		return err
	}
	var outcomes []renew.Outcome
	run := onDemand(client, s)
	run.Force = o.force
	run.Say = func(done renew.Outcome) {
		outcomes = append(outcomes, done)
		if o.output != asJSON {
			printRenewal(c.OutOrStdout(), done)
		}
	}
	if o.dryRun {
		err = plannedRenewals(run, seen.Pairs, names)
	} else if err = run.Run(c.Context(), names); err == nil {
		err = restarts(c.Context(), run, o.restart, c.ErrOrStderr())
	}
	if o.output == asJSON {
		return errors.Join(printJSON(c.OutOrStdout(), outcomes), err)
	}
	if len(outcomes) == 0 && err == nil {
		fmt.Fprintln(c.OutOrStdout(), "nothing is due")
	}
	return err
}

// plannedRenewals says what would be renewed.
func plannedRenewals(run renew.OnDemand, all []pair.Facts, names []string) error {
	chosen, err := run.Choose(all, names)
	if err != nil {
		return err
	}
	for _, p := range chosen {
		run.Say(renew.Outcome{Pair: p.Name, Result: renew.Planned, Ended: p.Leaf.NotAfter})
	}
	if len(chosen) > 0 {
		return process.Exit{Code: exitPending}
	}
	return nil
}

func printRenewal(w io.Writer, o renew.Outcome) {
	fmt.Fprintf(w, "%s: %s", printable.Text(o.Pair), o.Result)
	if !o.Ends.IsZero() {
		fmt.Fprintf(w, ", ends at %s", stamp(o.Ends, time.RFC3339))
	} else {
		fmt.Fprintf(w, ", it ends at %s", stamp(o.Ended, time.RFC3339))
	}
	if o.Why != "" {
		fmt.Fprintf(w, " (%s)", printable.Text(o.Why))
	}
	fmt.Fprintln(w)
}

// restarts restarts the programs that go on with what they read when they started, or names them.
func restarts(ctx context.Context, run renew.OnDemand, restart bool, w io.Writer) error {
	if restart {
		return run.Restart(ctx)
	}
	all, err := run.Stale(ctx)
	for _, v := range all {
		fmt.Fprintf(w, "note: %s is not used yet, see --restart: %s\n", printable.Text(v.Name),
			printable.Text(v.StaleReason()))
	}
	return err
}

// onDemand is what renews pairs, but for who is told.
func onDemand(client *signer.Client, s config.Settings) renew.OnDemand {
	return renew.OnDemand{Signer: client, Leaf: probe.Leaf, Get: renew.Get, Clock: systemClock{}, Policy: renewalPolicy(s),
		Timeout: s.Renewal.Timeout, Pause: time.Second / 2}
}

func renewalPolicy(s config.Settings) pair.Policy {
	r := s.Renewal
	return pair.Policy{Mode: pair.Mode(r.Mode), RenewBefore: r.RenewBefore, WarnBefore: r.WarnBefore,
		ThroughEtcd: r.ThroughEtcd}
}
