// SPDX-License-Identifier: Apache-2.0

// Package renew is the process that knows how the certificates of a control plane stand: it asks the signer what
// there is, looks at what the servers of this host show, and publishes a report. It has the network, and neither a
// key nor a file that matters.
//
// The report is what people and programs read: renewal.json for commands and for the agent, which puts the first
// dates into the node's state object, and renewal.prom for Prometheus.
//
// Sources: kubeadm's "certs check-expiration" for what people are used to; kubernetes/kubernetes#98310 for why the
// disk is compared with what is served.
package renew

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/lock"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// Signer is the process that sees the files.
type Signer interface {
	Inspect(context.Context) (inspect.Inspection, error)
}

// Renewer is everything plugged in.
type Renewer struct {
	Signer Signer
	// Leaf asks a server of this host for the certificate that it serves, in DER.
	Leaf  func(ctx context.Context, address string) ([]byte, error)
	Clock clock.Clock
	Log   *zap.Logger
	// Publish takes each report.
	Publish func(pair.Report) error
	Policy  pair.Policy
	// Turn renews what is due, if it is not nil; see Unattended.
	Turn func(context.Context) (blocked string, err error)
	// Held is who held the lock after the last Turn, if it is not nil.
	Held func() *lock.Holder
	// Interval is the time between two looks.
	Interval time.Duration
	// Alive is called after each look.
	Alive func()

	blocked string
}

// Run looks at the host again and again until ctx ends. What fails is logged when it begins to, and tried again.
func (r *Renewer) Run(ctx context.Context) error {
	last := ""
	for ctx.Err() == nil {
		err := r.publish(ctx)
		r.Alive()
		if err == nil && r.Turn != nil {
			err = r.turn(ctx)
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != "" && text != last && ctx.Err() == nil {
			r.Log.Warn("looking at the host's certificates", zap.String("error", text))
		}
		last = text
		select {
		case <-ctx.Done():
		case <-r.Clock.After(r.Interval):
		}
	}
	return nil
}

// turn renews what is due, and says so if that was possible or is no longer.
func (r *Renewer) turn(ctx context.Context) error {
	blocked, err := r.Turn(ctx)
	if err != nil {
		blocked = err.Error()
	}
	if blocked != r.blocked && ctx.Err() == nil {
		r.Log.Warn("renewing what is due", zap.String("blocked", blocked))
	}
	r.blocked = blocked
	return r.publish(ctx)
}

// Refresh publishes a report in the middle of Turn, which can wait for minutes after it has renewed a pair. What
// fails is tried again after it.
func (r *Renewer) Refresh(ctx context.Context) { _ = r.publish(ctx) }

// publish makes one report.
func (r *Renewer) publish(ctx context.Context) error {
	report, err := r.Report(ctx)
	if err != nil {
		return err
	}
	return r.Publish(report)
}

// Report is how the host stands now.
func (r *Renewer) Report(ctx context.Context) (pair.Report, error) {
	seen, err := r.Signer.Inspect(ctx)
	if err != nil {
		return pair.Report{}, err
	}
	verdicts := make([]pair.Verdict, 0, len(seen.Pairs))
	for _, f := range seen.Pairs {
		verdicts = append(verdicts, pair.Judge(f, r.served(ctx, f), r.Policy, r.Clock.Now()))
	}
	report := pair.NewReport(string(r.Policy.Mode), verdicts, seen.Notes, r.Clock.Now())
	report.Blocked = r.blocked
	if r.Held == nil {
		return report, nil
	}
	if h := r.Held(); h != nil && h.Phase == lock.Work {
		report.Lock = &pair.Lock{Host: h.Host, Since: h.Since}
	}
	return report, nil
}
