// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// writerTimeout bounds one request to the privileged half: it may have to be started first, and a
// slow disk may have to sync many files.
const writerTimeout = 60 * time.Second

// observe asks w for files.
func observe(ctx context.Context, w Writer, queries []plan.Query) (plan.Observed, error) {
	ctx, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	files, err := w.Observe(ctx, queries)
	if err != nil {
		return nil, fmt.Errorf("observing the managed files: %v", err)
	}
	o := make(plan.Observed, len(files))
	for i, f := range files {
		o[queries[i].Key] = f
	}
	return o, nil
}

// followFiles has the directories of all managed files watched: those of the table, and those that
// entries have for themselves.
func (l *loop) followFiles() {
	dirs := make(map[string]bool)
	for _, d := range l.Follow {
		dirs[d] = true
	}
	for _, r := range l.Policy.Rows {
		dirs[r.Directory()] = true
	}
	if l.desired != nil {
		for _, e := range l.desired.Entries {
			if row, ok := l.Policy.Row(e.Row); ok {
				if p, err := row.Path(e.Name); err == nil {
					dirs[path.Dir(p)] = true
				}
			}
		}
	}
	if !maps.Equal(dirs, l.followed) {
		l.followed = dirs
		if err := l.Drift.Set(slices.Sorted(maps.Keys(dirs))); err != nil {
			l.Log.Warn("watching the managed directories", zap.Error(err))
		}
	}
}

// Preview is the plan for d on the host as it is, without any effect.
func Preview(ctx context.Context, w Writer, d plan.Desired, m plan.Memory, p plan.Policy, now plan.Moment) (plan.Plan, error) {
	o, err := observe(ctx, w, plan.Queries(d, m, p, nil))
	if err != nil {
		return plan.Plan{}, err
	}
	return plan.Compute(plan.Input{Desired: d, Observed: o, Memory: m, Policy: p, Now: now}), nil
}
