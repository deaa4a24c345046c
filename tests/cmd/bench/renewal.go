// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

const (
	// issuedFor is how long certificates last where renewals are watched: the agent replaces them
	// after 70 to 90 % of that.
	issuedFor = 20 * time.Second
	// A change is around a renewal from a second before the new certificate is on disk, when it is being
	// asked for, until two seconds after, when the watch has been opened anew.
	before = time.Second
	after  = 2 * time.Second
)

// renewal changes the object all the time while the agent renews its certificate again and again, and
// compares the changes around a renewal with the baseline, which has none. A change must have arrived before
// the next one is made, so that none is lost unnoticed.
func renewal(ctx context.Context, _ *env, p plan, t *figures.Table) (err error) {
	e, err := newEnv(ctx, "--cluster-signing-duration="+issuedFor.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	if err := e.identify(ctx); err != nil {
		return err
	}
	file := e.Host.Path("/var/lib/node-cert-agent/identity.pem")
	certificates, err := newObserver(filepath.Dir(file))
	if err != nil {
		return err
	}
	mark, err := e.asked.Length()
	if err != nil {
		return err
	}
	var renewed []time.Time
	baseline, agent, accepted := figures.Samples{}, figures.Samples{}, []time.Time{}
	for len(renewed) < p.renewals {
		s, err := e.alternate(ctx, 1, shortPause, (*controllerconfig.Content).Rotate)
		if err != nil {
			return err
		}
		baseline, agent, accepted = append(baseline, s.first["baseline"]...), append(agent, s.first["agent"]...),
			append(accepted, s.accepted...)
		renewed = append(renewed, certificates.moved(file)...)
	}
	used, err := e.asked.Since(mark)
	if err != nil {
		return err
	}
	around, next := near(renewed, accepted, agent)
	t.Note("changes that arrived, each before the next, in "+fmt.Sprint(len(renewed))+" renewals", "%d of %d", len(agent),
		len(accepted))
	t.Compare("accepted -> file visible, around a renewal", map[string]figures.Samples{"baseline": baseline, "agent": around},
		map[string]float64{"p50": 1.35, "p95": 1.5})
	t.Note("  the first change after each renewal", "%v", next)
	t.Note("  all changes of the agent", "%v", agent)
	t.Note("  requests meanwhile", "%v", used)
	return nil
}

// near picks the changes that are around one of the renewals, and the first that was accepted after each.
func near(renewed, accepted []time.Time, took figures.Samples) (around, next figures.Samples) {
	for i, at := range accepted {
		if slices.ContainsFunc(renewed, func(r time.Time) bool {
			return at.After(r.Add(-before)) && at.Before(r.Add(after))
		}) {
			around = append(around, took[i])
		}
	}
	for _, r := range renewed {
		if i := slices.IndexFunc(accepted, r.Before); i >= 0 {
			next = append(next, took[i])
		}
	}
	return around, next
}

// moved takes what came until now, and returns when a file did.
func (o *observer) moved(path string) (at []time.Time) {
	for {
		select {
		case a := <-o.arrivals:
			if a.path == path {
				at = append(at, a.at)
			}
		default:
			return at
		}
	}
}
