// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"fmt"
	"math"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/kubeconfig"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Local does the work itself: behind the socket as root, or in plain mode in the agent's own
// process. It is immutable; its methods may be called concurrently.
type Local struct {
	files    map[plan.Field]plan.FileSpec
	table    []plan.FileSpec
	tree     *disk.Tree
	validate func(plan.FileSpec, []byte) ([]pki.Cert, error)
	consume  Consume
	kubelet  bool
	records  *records
}

// New serves these fields in this tree. What validate returns an error for is not staged; the error
// must not quote the content. Otherwise it returns the certificates, for the records.
func New(specs []plan.FileSpec, tree *disk.Tree, validate func(plan.FileSpec, []byte) ([]pki.Cert, error)) *Local {
	l := &Local{files: make(map[plan.Field]plan.FileSpec, len(specs)), table: specs, tree: tree, validate: validate,
		consume: Keep}
	for _, r := range specs {
		l.files[r.Field] = r
	}
	return l
}

// caData is what of a kubeconfig is seen and changed. The rest of it, credentials included, stays on
// this side.
var caData = disk.Editor{Get: kubeconfig.CA, Set: kubeconfig.SetCA}

// Observe answers each query with what the host has.
func (l *Local) Observe(ctx context.Context, queries []plan.Query) ([]plan.File, error) {
	return l.observe(ctx, queries, math.MaxInt)
}

// observe stops after the answer that brings the content to stopAt bytes or more.
func (l *Local) observe(ctx context.Context, queries []plan.Query, stopAt int) ([]plan.File, error) {
	onDisk := make([]disk.Query, len(queries))
	for i, q := range queries {
		target, err := l.target(q.Key)
		if err != nil {
			return nil, err
		}
		onDisk[i] = disk.Query{Target: target, Known: q.Known}
	}
	files := make([]plan.File, 0, len(onDisk))
	size := 0
	for f := range l.tree.Observe(onDisk) {
		if queries[len(files)].Field.Secret() {
			f.Data = nil // nobody on the other side needs to see what was there before
		}
		files = append(files, f)
		if size += overhead + len(f.Data); size >= stopAt {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("observe: %w", err)
		}
	}
	return files, nil
}

// Commit checks everything, and then carries it out as disk.Tree.Commit does. Once begun it is not
// cut short by the context.
func (l *Local) Commit(ctx context.Context, c plan.Commit) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	j, err := l.checkCommit(c)
	if err != nil {
		return err
	}
	if err := l.announce(j.effects, j.targets); err != nil {
		return err
	}
	if err := l.tree.Commit(j.changes, j.removals); err != nil {
		return l.stopped(err)
	}
	return nil
}

// stopped records that something was begun and not finished.
func (l *Local) stopped(err error) error {
	l.records.print(fmt.Sprintf("<4>writer stopped: reason=%q", err.Error()[:min(len(err.Error()), maxReason)]))
	return failure(err)
}

// checkedCommit is what a commit does, and what is recorded of it, file by file.
type checkedCommit struct {
	changes  []disk.Change
	removals []disk.Removal
	effects  []effect
	targets  []disk.Target // of the effects
}

func (l *Local) checkCommit(c plan.Commit) (j checkedCommit, err error) {
	taken := make(map[string]bool, len(c.Writes)+len(c.Removals))
	add := func(e effect) (disk.Target, error) {
		target, err := l.target(e.key)
		if err == nil && taken[target.Path] {
			err = refuse("%s: its file is in this commit twice", e.key)
		}
		taken[target.Path], e.path = true, target.Path
		j.effects, j.targets = append(j.effects, e), append(j.targets, target)
		return target, err
	}
	for _, w := range c.Writes {
		target, err := add(effect{key: w.Key, after: plan.DigestOf(w.Data), size: len(w.Data)})
		if err != nil {
			return checkedCommit{}, err
		}
		if j.effects[len(j.effects)-1].certs, err = l.check(w); err != nil {
			return checkedCommit{}, err
		}
		j.changes = append(j.changes, disk.Change{Target: target, Data: w.Data})
	}
	for _, r := range c.Removals {
		target, err := add(effect{key: r.Key, remove: true})
		if err != nil {
			return checkedCommit{}, err
		}
		if spec := l.files[r.Field]; !spec.Many() {
			return checkedCommit{}, refuse("%s: has one file, which is replaced and never removed", r.Key)
		}
		j.removals = append(j.removals, disk.Removal{Target: target, Digest: r.Digest})
	}
	return j, nil
}

// check validates the bytes of one write: nothing is emptied, nothing invalid is staged.
func (l *Local) check(w plan.CommitWrite) ([]pki.Cert, error) {
	if len(w.Data) == 0 || len(w.Data) > disk.MaxSize {
		return nil, refuse("%s: %d bytes, want 1 to %d", w.Key, len(w.Data), disk.MaxSize)
	}
	certs, err := l.validate(l.files[w.Field], w.Data)
	if err != nil {
		return nil, refuse("%s: %v", w.Key, err)
	}
	return certs, nil
}

// Sweep removes the leftovers of killed commits and returns their paths.
func (l *Local) Sweep(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	removed, err := l.tree.Sweep(l.table)
	for _, p := range removed {
		l.records.print(fmt.Sprintf("<5>writer swept: path=%q", p))
	}
	if err != nil {
		return removed, failure(err)
	}
	return removed, nil
}

// target is where a path is made of a key, and the only place.
func (l *Local) target(k plan.Key) (disk.Target, error) {
	spec, ok := l.files[k.Field]
	if !ok {
		return disk.Target{}, refuse("no field %q on this host", k.Field)
	}
	target, err := disk.TargetOf(spec, k.Name)
	if err != nil {
		return disk.Target{}, refuse("%v", err)
	}
	if k.Field.Edits() {
		target.Editor = &caData
	}
	return target, nil
}

// checkDefinitions says which of these fields is defined otherwise here. Of one that is not here, target does.
func (l *Local) checkDefinitions(definitions map[plan.Field]plan.Digest) *Error {
	for id, d := range definitions {
		if spec, ok := l.files[id]; ok && spec.Definition() != d {
			return &Error{Kind: failed, Untouched: true,
				Text: fmt.Sprintf("field %s: agent and writer have read the configuration at different times",
					printable.Text(string(id)))}
		}
	}
	return nil
}
