// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// settling is how long both halves may take to come to rest, memory given back included.
const settling = 5 * time.Second

const changesBefore = 60

// memory is what processes that started before 60 changes hold after them.
func memory(ctx context.Context, e *env, _ plan, t *figures.Table) error {
	if _, err := e.Host.Run(ctx, "systemctl", "restart", writerUnit, agentUnit, baselineUnit); err != nil {
		return err
	}
	if _, err := e.alternate(ctx, changesBefore, shortPause, (*controllerconfig.Content).Rotate); err != nil {
		return err
	}
	pause(ctx, settling)
	use, err := e.uses(ctx)
	if err != nil {
		return err
	}
	at := fmt.Sprintf("after %d changes: ", changesBefore)
	t.Judge(at+"agent, resident", use[agentUnit].resident, 16, "MiB")
	t.Judge(at+"agent, anonymous", use[agentUnit].anonymous, 5, "MiB")
	t.Judge(at+"writer, anonymous", use[writerUnit].anonymous, 3, "MiB")
	t.Note(at+"writer, resident", "%.2f MiB", use[writerUnit].resident)
	t.Note(at+"baseline, resident / anonymous", "%.2f / %.2f MiB", use[baselineUnit].resident, use[baselineUnit].anonymous)
	t.Note(at+"threads of agent, writer, baseline", "%d, %d, %d", use[agentUnit].threads, use[writerUnit].threads,
		use[baselineUnit].threads)
	return nil
}

func (e *env) uses(ctx context.Context) (map[string]use, error) {
	out := map[string]use{}
	for _, unit := range []string{agentUnit, writerUnit, baselineUnit} {
		u, err := e.use(ctx, unit)
		if err != nil {
			return nil, err
		}
		out[unit] = u
	}
	return out, nil
}

// idle is what each process spends in a minute in which nothing happens.
func idle(ctx context.Context, e *env, p plan, t *figures.Table) error {
	pause(ctx, settling)
	if err := e.probed(ctx); err != nil {
		return err
	}
	pause(ctx, settling)
	before, err := e.uses(ctx)
	if err != nil {
		return err
	}
	pause(ctx, p.idle)
	after, err := e.uses(ctx)
	if err != nil {
		return err
	}
	minutes := p.idle.Minutes()
	for _, unit := range []string{agentUnit, writerUnit, baselineUnit} {
		cpu := figures.Milliseconds(after[unit].cpu-before[unit].cpu) / minutes
		switches := float64(after[unit].switches-before[unit].switches) / minutes
		name := map[string]string{agentUnit: "agent", writerUnit: "writer", baselineUnit: "baseline"}[unit]
		if unit == baselineUnit {
			t.Note("idle, a minute: baseline", "%.2f ms of CPU, %.0f voluntary switches", cpu, switches)
			continue
		}
		t.Judge("idle, a minute: "+name+", CPU", cpu, 2, "ms")
		t.Judge("idle, a minute: "+name+", voluntary switches", switches, 60, "")
	}
	return e.together(ctx, t)
}

// together is what all processes hold when nothing has happened for a minute. A unit is put on the allowlist before,
// so that the reloader was there.
func (e *env) together(ctx context.Context, t *figures.Table) (err error) {
	if err := e.allow(ctx, cluster.Reader); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.disallow(ctx)) }()
	if err := wait.Until(ctx, "the start of the reloader", func() bool {
		_, err := e.use(ctx, reloaderUnit)
		return err == nil
	}); err != nil {
		return err
	}
	pause(ctx, time.Minute)
	sum, each := 0.0, []string{}
	for _, unit := range []string{agentUnit, writerUnit, reloaderUnit} {
		switch u, err := e.use(ctx, unit); {
		case err == nil:
			sum, each = sum+u.resident, append(each, fmt.Sprintf("%.2f", u.resident))
		case errors.Is(err, errNotRunning):
			each = append(each, "none")
		default:
			return err
		}
	}
	t.Note("idle for a minute: agent, writer, reloader, resident", "%s MiB", strings.Join(each, ", "))
	t.Judge("  together", sum, 30, "MiB")
	return nil
}

// size is the binary's, static and stripped.
func size(_ context.Context, e *env, _ plan, t *figures.Table) error {
	for name, file := range map[string]string{"agent": "/usr/bin/node-cert-agent", "baseline": baselineBinary} {
		info, err := os.Stat(e.Host.Path(file))
		if err != nil {
			return err
		}
		if mib := float64(info.Size()) / (1 << 20); name == "baseline" {
			t.Note("binary: baseline", "%.2f MiB", mib)
		} else {
			t.Judge("binary: agent", mib, 14, "MiB")
		}
	}
	return nil
}

// probed waits until the agent asks no consumer any more whether it uses what was written last: a kubelet
// that does not run is asked for as long as one may take that does.
func (e *env) probed(ctx context.Context) error {
	asks := func() bool {
		return slices.ContainsFunc(e.Status().Files, func(f report.File) bool { return f.Use() == liveness.Waiting })
	}
	return wait.Until(ctx, "the end of the probes", func() bool { return !asks() })
}
