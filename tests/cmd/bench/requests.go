// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/auditlog"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// quietName is another node than before, whose identity is in use.
const quietName = "quiet"

// habit is something that the agent does by itself on a quiet cluster, too seldom to be watched for. It is
// made to happen often for a while; all requests of that while are its own, and are scaled to how often it
// happens by default.
type habit struct {
	name, settings        string
	every, usually, lasts time.Duration
}

// habits with their defaults, which are those of the profile standalone. A renewal is not among them: it
// comes once in 4.9 days at most and asks less than a first certificate. Nor is the heartbeat of the state
// object, one request an hour, which cannot be configured.
var habits = []habit{
	{"the end of a watch", "watch: {retryJitter: 200ms, retryMax: 1s, timeout: 30s}\n", 30 * time.Second,
		30 * time.Minute, 5 * time.Minute},
	{"a probe of the identity", "identity: {checkInterval: 5s}\n", 5 * time.Second, 10 * time.Minute, time.Minute},
	{"a resync", "resync: 5s\n", 5 * time.Second, 10 * time.Minute, time.Minute},
	{"a look for bootstrap files", "bootstrap: {idlePollInterval: 5s}\n", 5 * time.Second, time.Hour, time.Minute},
}

const (
	day        = 24 * time.Hour
	heartbeats = 24.
	// renewals come at 70 % of the default lifetime at the earliest.
	renewals = float64(day) / (0.7 * 7 * float64(day))
)

// requests counts what the agent asks of the API server on a quiet cluster, a day.
func requests(ctx context.Context, e *env, p plan, t *figures.Table) error {
	first, err := e.fromToken(ctx)
	if err != nil {
		return err
	}
	t.Note("requests: from a token to the first files", "%v", first)
	quiet, err := e.requestedFor(ctx, p.quiet)
	if err != nil {
		return err
	}
	t.Note(fmt.Sprintf("requests: %v of nothing", p.quiet), "%v", quiet)
	total := heartbeats + renewals*float64(first.Total())
	for _, h := range habits {
		got, err := e.often(ctx, h)
		if err != nil {
			return err
		}
		t.Note(fmt.Sprintf("requests: %v of %s every %v", h.lasts, h.name, h.every), "%v", got)
		daily := float64(got.Total()) * float64(h.every) / float64(h.lasts) * float64(day/h.usually)
		t.Note(fmt.Sprintf("  a day, every %v", h.usually), "%.0f", daily)
		total += daily
	}
	t.Note("  a day: heartbeats, and renewals at the price of a first certificate", "%.0f, %.1f", heartbeats,
		renewals*float64(first.Total()))
	t.Judge("requests a node and day on a quiet cluster", total, 400, "")
	return nil
}

// fromToken counts the requests of a first certificate, and of what follows at once.
func (e *env) fromToken(ctx context.Context) (auditlog.Counts, error) {
	if err := e.identify(ctx); err != nil {
		return nil, err
	}
	s := newTokens(e)
	if err := s.prepare(ctx, quietName, "bench1"); err != nil {
		return nil, err
	}
	mark, err := e.asked.Length()
	if err != nil {
		return nil, err
	}
	if _, err := s.start(ctx); err != nil {
		return nil, err
	}
	pause(ctx, 3*settling) // the state object is written every ten seconds at most
	return e.asked.Since(mark)
}

// often counts while a habit is frequent.
func (e *env) often(ctx context.Context, h habit) (auditlog.Counts, error) {
	settings := "apiVersion: config.node-cert-agent.io/v1alpha1\ncontrollerConfig: {group: " +
		"machineconfiguration.openshift.io, " +
		"version: v1}\nnode: {name: " + quietName + "}\n"
	if err := e.Host.PutFile(cluster.Fragment, host.File{Data: []byte(settings + h.settings)}); err != nil {
		return nil, err
	}
	if _, err := e.Host.Run(ctx, "systemctl", "restart", agentUnit); err != nil {
		return nil, err
	}
	pause(ctx, 5*settling)
	return e.requestedFor(ctx, h.lasts)
}

// requestedFor counts from now on.
func (e *env) requestedFor(ctx context.Context, d time.Duration) (auditlog.Counts, error) {
	mark, err := e.asked.Length()
	if err != nil {
		return nil, err
	}
	pause(ctx, d)
	return e.asked.Since(mark)
}
