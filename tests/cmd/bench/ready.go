// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// readyBudget is how long a start may take, in milliseconds, until systemd has READY=1, and what is ordered
// after the agent, the kubelet, may start; readyMedian is how long it usually may.
const readyBudget, readyMedian = 150, 110

// startUnits are what a start of the agent runs before it is ready: the writer comes up beside it. The reloader is
// started afterwards, when a unit is asked about.
var startUnits = []string{agentUnit, writerUnit}

// ready is the time from `systemctl start` of an agent that has an identity and its files, the way into the host
// included, to the moment at which systemd had READY=1. The baseline is the start of the baseline's service, which is ready
// as soon as it is executed: what systemd and the way into the host cost. What the start takes of the processors,
// systemd's own work in the new processes included, tells a slow start from a machine that has no time for it. A unit
// is on the allowlist, so that there is something to ask the reloader.
func ready(ctx context.Context, e *env, p plan, t *figures.Table) (err error) {
	if err := e.identify(ctx); err != nil {
		return err
	}
	if err := e.allow(ctx, cluster.Reader); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.disallow(ctx)) }()
	times := map[string]figures.Samples{}
	var used figures.Samples
	units := map[string][]string{"agent": {agentUnit, writerUnit, reloaderUnit}, "baseline": {baselineUnit}}
	for range p.starts {
		for _, i := range rand.Perm(len(e.arms)) {
			name := e.arms[i].name
			if _, err := e.Host.Run(ctx, append([]string{"systemctl", "stop"}, units[name]...)...); err != nil {
				return err
			}
			pause(ctx, shortPause)
			began, err := monotonic()
			if err != nil {
				return err
			}
			if _, err := e.Host.Run(ctx, "systemctl", "start", units[name][0]); err != nil {
				return fmt.Errorf("the start of the %s: %w", name, err)
			}
			active, err := e.number(ctx, "ActiveEnterTimestampMonotonic", units[name][0])
			if err != nil {
				return err
			}
			times[name] = append(times[name], time.Duration(active)*time.Microsecond-began)
			if name == "baseline" {
				continue
			}
			took, err := e.number(ctx, "CPUUsageNSec", startUnits...)
			if err != nil {
				return err
			}
			used = append(used, time.Duration(took))
			if err := wait.Until(ctx, "following", func() bool { return e.Status().State == "following" }); err != nil {
				return err
			}
		}
	}
	t.Compare("systemctl start -> READY=1", times, nil)
	t.Note("  of both processors, agent and writer", "%v", used)
	t.Judge("  agent, p50", times["agent"].Milliseconds(.5), readyMedian, "ms")
	t.Judge("  agent, p95", times["agent"].Milliseconds(.95), readyBudget, "ms")
	return nil
}

// monotonic is the clock of systemd's timestamps; the host has no other.
func monotonic() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano()), err
}

// number is the sum of a property over units.
func (e *env) number(ctx context.Context, property string, units ...string) (sum int64, err error) {
	out, err := e.Host.Run(ctx, append([]string{"systemctl", "show", "--property=" + property, "--value"}, units...)...)
	if err != nil {
		return 0, err
	}
	for field := range strings.FieldsSeq(out) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s of %v is %q", property, units, out)
		}
		sum += n
	}
	return sum, nil
}
