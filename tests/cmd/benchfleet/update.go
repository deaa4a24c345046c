// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

// round updates the ControllerConfig, and waits until all have it.
func (e *env) round(ctx context.Context) (figures.Samples, error) {
	e.files.round(e.n)
	accepted, err := e.update(ctx)
	if err != nil {
		return nil, err
	}
	at, err := e.files.wait(ctx, "the update", e.options.limit)
	return figures.Since(accepted, at), err
}

// update puts another certificate into the kubelet's bundle, and returns when that was accepted.
func (e *env) update(ctx context.Context) (accepted time.Time, err error) {
	spec := e.content.Rotate()
	e.expect(spec.KubeAPIServerServingCAData)
	_, err = e.store.Patch(ctx, spec)
	return time.Now(), err
}

// update is the time from an accepted update until the file is on the disk of the nodes, and when they report it. A
// round begins when the reports of the last one are done.
func update(ctx context.Context, e *env) error {
	var rounds []figures.Samples
	var spread, busy, agents, server, reports []float64
	for range e.options.rounds {
		pause(ctx, reportMost)
		e.reports.round(e.n)
		before, err := e.processors(ctx)
		if err != nil {
			return err
		}
		took, err := e.round(ctx)
		if err != nil {
			return err
		}
		after, err := e.processors(ctx)
		if err != nil {
			return err
		}
		agents = append(agents, figures.Milliseconds(after.agents-before.agents)/float64(e.n))
		server = append(server, figures.Milliseconds(after.server-before.server)/float64(e.n))
		rounds = append(rounds, took)
		reported, err := e.reports.wait(ctx, "reports", e.options.limit)
		if err != nil {
			return err
		}
		done, err := e.processors(ctx)
		if err != nil {
			return err
		}
		reports = append(reports, figures.Milliseconds(done.server-after.server)/float64(e.n))
		first := slices.MinFunc(reported, time.Time.Compare)
		spread, busy = append(spread, figures.Since(first, reported).Seconds(1)), append(busy, float64(busiest(reported)))
	}
	e.table.Note("update accepted -> file written", "%s", summary(rounds))
	e.table.Judge("  last, median of the rounds", column(rounds, 1).Seconds(.5), 2, "s")
	if len(e.bare) > 0 {
		e.table.Note("  agent / baseline, last", "%.2f x", column(rounds, 1).Seconds(.5)/column(e.bare, 1).Seconds(.5))
	}
	e.table.Note("  until then, CPU of agents and API server, each agent", "%.2f, %.2f ms at most", slices.Max(agents),
		slices.Max(server))
	e.table.Note("  reports of a round: first to last", "%.1f s at least, %.1f s at most", slices.Min(spread),
		slices.Max(spread))
	e.table.Note("  from the last file to the last report, CPU of the API server", "%.2f ms an agent at most",
		slices.Max(reports))
	e.table.Note("  reports in the busiest second", "%.0f", slices.Max(busy))
	return e.check()
}

// summary is each round's median and p99, each as the median of the rounds, and the worst last.
func summary(rounds []figures.Samples) string {
	last := column(rounds, 1)
	return fmt.Sprintf("p50 %.3f  p99 %.3f  last %.3f s, at most %.3f (%d rounds)", column(rounds, .5).Seconds(.5),
		column(rounds, .99).Seconds(.5), last.Seconds(.5), last.Seconds(1), len(rounds))
}

// processors is the time that the agents and the API server have had processors.
type processors struct{ agents, server time.Duration }

func (e *env) processors(ctx context.Context) (p processors, err error) {
	if p.agents, err = e.used(); err != nil {
		return p, err
	}
	metrics, err := e.ask(ctx, e.admin, http.MethodGet, "/metrics", asJSON, nil)
	if err != nil {
		return p, err
	}
	p.server, err = processTime(string(metrics))
	return p, err
}

// processTime is process_cpu_seconds_total of an exposition.
func processTime(metrics string) (time.Duration, error) {
	for line := range strings.Lines(metrics) {
		if text, ok := strings.CutPrefix(line, "process_cpu_seconds_total "); ok {
			seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return time.Duration(seconds * float64(time.Second)), err
		}
	}
	return 0, errors.New("the API server does not say how long it has had processors")
}
