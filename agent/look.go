// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"path"
	"time"

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

// merge adds files to what was observed before. A path has one file, also if another row asked for it then.
func (l *loop) merge(observed, files plan.Observed) {
	taken := make(map[string]plan.RowID)
	for k := range files {
		if _, is := observed[k]; !is {
			p, _ := l.Policy.Path(k)
			taken[p] = k.Row
		}
	}
	if len(taken) > 0 {
		maps.DeleteFunc(observed, func(k plan.Key, _ plan.File) bool {
			p, ok := l.Policy.Path(k)
			row, is := taken[p]
			return ok && is && k.Row != row
		})
	}
	maps.Copy(observed, files)
}

// directories are those of all managed files: those of the table, those that entries and claimed files have for
// themselves, and those that links lead to.
func (l *loop) directories() map[string]bool {
	dirs := make(map[string]bool)
	for _, d := range l.Follow {
		dirs[d] = true
	}
	for _, r := range l.Policy.Rows {
		dirs[r.Directory()] = true
	}
	for k, f := range l.observed {
		if p, ok := l.Policy.Path(k); ok && f.Kind == plan.Regular {
			dirs[path.Dir(p)] = true
		}
		if f.Directory != "" {
			dirs[f.Directory] = true
		}
	}
	if l.desired.Current() != nil {
		for _, e := range l.desired.Current().Entries {
			if p, ok := l.Policy.Path(e.Key); ok {
				dirs[path.Dir(p)] = true
			}
		}
	}
	return dirs
}

// Preview is the plan for d on the host as it is, without any effect.
func Preview(ctx context.Context, w Writer, d plan.Desired, m plan.Memory, p plan.Policy, now plan.Moment) (plan.Plan, error) {
	o, err := observe(ctx, w, plan.Queries(d, m, p, nil))
	if err != nil {
		return plan.Plan{}, err
	}
	return plan.Compute(plan.Input{Desired: d, Observed: o, Memory: m, Policy: p, Now: now}), nil
}
