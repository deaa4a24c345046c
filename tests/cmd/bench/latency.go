// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// Pauses before a change. The agent looks at the disk once more 50 ms after it wrote, and keeps a copy
// of what it wrote, which for 25 files takes longer.
const (
	shortPause = 150 * time.Millisecond
	filesPause = 400 * time.Millisecond
	restPause  = 3 * time.Second
)

// series are the times of one kind of change, by the name of the arm, and when the agent's were accepted.
type series struct {
	first, last, update map[string]figures.Samples
	accepted            []time.Time
}

// alternate changes both arms' objects n times each, and times what each does about it.
func (e *env) alternate(ctx context.Context, n int, rest time.Duration,
	change func(*controllerconfig.Content) controllerconfig.Spec) (s series, err error) {
	s = series{first: map[string]figures.Samples{}, last: map[string]figures.Samples{}, update: map[string]figures.Samples{}}
	for range n {
		for _, i := range rand.Perm(len(e.arms)) {
			a := e.arms[i]
			spec := change(a.content)
			pause(ctx, rest+rand.N(rest/4))
			e.observer.drain()
			sent := time.Now()
			if _, err := a.store.Patch(ctx, spec); err != nil {
				return s, err
			}
			accepted := time.Now()
			first, last, err := e.await(ctx, a.want(spec))
			if err != nil {
				return s, fmt.Errorf("the %s: %w", a.name, err)
			}
			if a.name == "agent" {
				s.accepted = append(s.accepted, accepted)
			}
			s.update[a.name] = append(s.update[a.name], accepted.Sub(sent))
			s.first[a.name] = append(s.first[a.name], first.Sub(accepted))
			s.last[a.name] = append(s.last[a.name], last.Sub(accepted))
		}
	}
	return s, nil
}

func (e *env) await(ctx context.Context, want map[string][]byte) (first, last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait.Limit)
	defer cancel()
	return e.observer.await(ctx, want)
}

// latency is the time from an accepted update to its one changed file.
func latency(ctx context.Context, e *env, p plan, t *figures.Table) error {
	t.Note("size of the object", "%d bytes of JSON", len(controllerconfig.Object(controllerconfig.OpenShift,
		e.arms[1].content.Spec)))
	s, err := e.alternate(ctx, p.rounds, shortPause, (*controllerconfig.Content).Rotate)
	if err != nil {
		return err
	}
	t.Note("update accepted by the API server", "%v", append(s.update["baseline"], s.update["agent"]...))
	t.Compare("accepted -> file visible", s.first, map[string]float64{"p50": 1.35, "p95": 1.5})
	return nil
}

// lastFile is the time from an accepted update to the last of 25 changed files.
func lastFile(ctx context.Context, e *env, p plan, t *figures.Table) error {
	s, err := e.alternate(ctx, p.filesRounds, filesPause, (*controllerconfig.Content).RotateAll)
	if err != nil {
		return err
	}
	t.Compare(fmt.Sprintf("accepted -> last of %d files visible", len(controllerconfig.Files(e.arms[1].content.Spec))), s.last,
		map[string]float64{"p50": 1.5, "p95": 1.5})
	return nil
}

// afterRest is latency after a rest in which memory was given back and caches went cold.
func afterRest(ctx context.Context, e *env, p plan, t *figures.Table) error {
	s, err := e.alternate(ctx, p.restRounds, restPause, (*controllerconfig.Content).Rotate)
	if err != nil {
		return err
	}
	t.Compare(fmt.Sprintf("accepted -> file visible, after %v of rest", restPause), s.first, nil)
	return nil
}
