// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/check"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/probe"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
	"github.com/node-cert-agent/node-cert-agent/renew"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

var errNoRenewal = errors.New("nobody looks after the certificates of a control plane on this host")

func renewCommand(f *flags) *cobra.Command {
	var output format
	var watch bool
	cmd := &cobra.Command{
		Use:   "renew",
		Short: "Show the certificates of a control plane, who renews them, and until when",
		Long: `renew prints what node-cert-agent-renew.service last found out about the certificates of this host's control
plane and etcd: where they are, when they end, who renews them, and whether those who use them use what is
on disk. With --watch it is that service.

Exit codes beside the usual: 3 a certificate has expired, or ends soon and nobody renews it.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if watch {
				return f.configured(f.watchPairs)(c, args)
			}
			r, err := f.renewals()
			if err != nil {
				return err
			}
			if err := showRenewals(c.OutOrStdout(), output, r); err != nil {
				return err
			}
			return attention(r)
		},
	}
	output.flag(cmd)
	cmd.Flags().BoolVar(&watch, "watch", false, "be the service (started by systemd)")
	cmd.AddCommand(renewNowCommand(f), renewReleaseCommand(f), renewRequestCommand(f), renewIssueCommand(f),
		renewInstallCommand(f))
	return cmd
}

// watchPairs is the service.
func (f *flags) watchPairs(c *cobra.Command, s config.Settings) error {
	if f.plain() {
		return process.Misused(errors.New("--root: in plain mode there is no signer to ask"))
	}
	tree, err := disk.Open("/")
	if err != nil {
		return err
	}
	client := signer.Dial(signerSocket)
	defer func() { _ = client.Close() }()
	log := newLog(f, c.ErrOrStderr())
	r := renew.Renewer{Signer: client, Leaf: probe.Leaf, Clock: systemClock{}, Log: log,
		Interval: s.Renewal.Interval, Alive: alive, Policy: renewalPolicy(s),
		Publish: func(p pair.Report) error {
			text, err := renew.Encode(p)
			if err != nil {
				return err
			}
			return errors.Join(tree.WriteFile(renewDir+"/"+renew.ReportFile, text, 0o644),
				tree.WriteFile(renewDir+"/"+renew.MetricsFile, renew.Metrics(p), 0o644))
		}}
	if r.Policy.Mode == pair.ModeRenew {
		host, err := os.Hostname() // the node's name would be in files that this process cannot see
		if err != nil {
			return err
		}
		u := unattended(s, client, host, log)
		said := u.Say
		u.Say = func(o renew.Outcome) { said(o); r.Refresh(c.Context()) }
		r.Turn, r.Held = u.Turn, u.Held
	}
	return r.Run(c.Context())
}

// unattended renews what is due for the service.
func unattended(s config.Settings, client *signer.Client, host string, log *zap.Logger) *renew.Unattended {
	on := onDemand(client, s)
	on.Say = func(o renew.Outcome) {
		log.Info("renewing what is due", zap.String("pair", o.Pair), zap.String("result", string(o.Result)),
			zap.Time("ends", o.Ends), zap.String("why", o.Why))
	}
	return &renew.Unattended{OnDemand: on, Connect: renew.Connect, Host: host,
		DegradedBelow: s.Renewal.DegradedBelow,
		Users:         s.Renewal.Restart}
}

// alive tells systemd that the service has started, and that it goes on.
func alive() { _, _ = daemon.SdNotify(false, daemon.SdNotifyReady+"\n"+daemon.SdNotifyWatchdog) }

// renewals is what the service last published.
func (f *flags) renewals() (pair.Report, error) {
	tree, err := disk.Open(f.root)
	if err != nil {
		return pair.Report{}, err
	}
	dir, err := tree.Directory(renewDir)
	var text []byte
	if err == nil {
		text, err = dir.ReadFile(renew.ReportFile)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return pair.Report{}, errNoRenewal
	}
	if err != nil {
		return pair.Report{}, fmt.Errorf("reading the report of renewals: %w", err)
	}
	return renew.Parse(text)
}

// withRenewal adds to each status what the other service found out, if it runs here.
type withRenewal struct {
	agent.Reporter
	flags *flags
}

// Publish implements agent.Reporter.
func (w withRenewal) Publish(s report.Status) error {
	if r, err := w.flags.renewals(); err == nil {
		s.Renewal = &report.Renewal{Observed: r.Published}
		if r.Earliest != nil {
			s.Renewal.Earliest = r.Earliest.NotAfter
		}
		if r.Unrenewed != nil {
			s.Renewal.Unrenewed = r.Unrenewed.NotAfter
		}
	}
	return w.Reporter.Publish(s)
}

// pairFacts are what check judges; nil without a report that can be read.
func (f *flags) pairFacts() *check.Pairs {
	r, err := f.renewals()
	if err != nil {
		return nil
	}
	out := &check.Pairs{Observed: r.Published}
	for _, v := range r.Pairs {
		p := check.Pair{Name: v.Name, NotAfter: v.Leaf.NotAfter, RenewedBy: v.RenewedBy, Problem: v.Problem,
			Expiring: v.State == pair.Expiring, Expired: v.State == pair.Expired, Stale: v.StaleReason()}
		out.All = append(out.All, p)
	}
	return out
}

func showRenewals(w io.Writer, output format, r pair.Report) error {
	if output == asJSON {
		return printJSON(w, r)
	}
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	printPairs(t, r)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&table, "\nas of %s", r.Published.Format(time.RFC3339))
	if d := r.Unrenewed; d != nil {
		fmt.Fprintf(&table, "; the first that nobody renews is %s, which ends at %s", printable.Text(d.Pair),
			d.NotAfter.Format(time.RFC3339))
	}
	table.WriteString("\n")
	if r.Blocked != "" {
		fmt.Fprintf(&table, "not renewed now: %s\n", printable.Text(r.Blocked))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&table, "note: %s\n", printable.Text(n))
	}
	return trim(w, table.String())
}

func printPairs(w io.Writer, r pair.Report) {
	fmt.Fprintln(w, "PAIR\tSTATE\tNOT AFTER\tRENEWED BY\tUSED\tFILE\tWHY")
	for _, v := range r.Pairs {
		by, used, why := "nobody", "", []string{}
		if v.RenewedBy != "" {
			by = v.RenewedBy
		}
		if v.NotRenewed != "" {
			why = append(why, v.NotRenewed)
		}
		if v.Use != nil {
			used = string(v.Use.State)
			if v.Use.Reason != "" {
				why = append(why, v.Use.Reason)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable.Text(v.Name), v.State, stamp(v.Leaf.NotAfter, time.RFC3339),
			printable.Text(by), used, printable.Text(v.Cert), printable.Text(strings.Join(why, "; ")))
	}
}

// attention is the exit code if something has to be done.
func attention(r pair.Report) error {
	for _, v := range r.Pairs {
		if v.State == pair.Expired || v.State == pair.Expiring {
			return process.Exit{Code: exitPending}
		}
	}
	return nil
}
