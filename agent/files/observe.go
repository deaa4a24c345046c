// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// writerTimeout bounds one request to the writer: it may have to be started first, and a
// slow disk may have to sync many files.
const writerTimeout = 60 * time.Second

// observe asks w for files.
func observe(ctx context.Context, w Writer, queries []plan.Query) (plan.Observed, error) {
	ctx, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	files, err := w.Observe(ctx, queries)
	if err != nil {
		return nil, fmt.Errorf("observing the managed files: %w", err)
	}
	o := make(plan.Observed, len(files))
	for i, f := range files {
		o[queries[i].Key] = f
	}
	return o, nil
}

// merge adds files to what was observed before. A path has one file, also if another field asked for it then.
func (f *Files) merge(observed, files plan.Observed) {
	taken := make(map[string]plan.Field)
	for k := range files {
		if _, is := observed[k]; !is {
			p, _ := f.Policy.Path(k)
			taken[p] = k.Field
		}
	}
	if len(taken) > 0 {
		maps.DeleteFunc(observed, func(k plan.Key, _ plan.File) bool {
			p, ok := f.Policy.Path(k)
			field, is := taken[p]
			return ok && is && k.Field != field
		})
	}
	maps.Copy(observed, files)
}

// look observes the host again after a commit, if anybody needs to know.
func (f *Files) look(ctx context.Context, d plan.Desired) error {
	if !f.LookAgain {
		return nil
	}
	o, err := observe(ctx, f.Writer, plan.Queries(d, f.Memory.State().Memory, f.Policy, f.cache.at))
	f.blind = err != nil
	if err != nil {
		return err // what was written since the last look is in doubt then: see unitplan.Doubts
	}
	f.cache.see(o)
	f.see(o)
	return nil
}

// see takes in what is on disk after a commit.
func (f *Files) see(o plan.Observed) {
	f.Units.Changed(f.inputs(f.observed, nil), f.inputs(o, nil))
	f.observed = o
}

// foresee is what will be observed once p is carried out. Units are told.
func (f *Files) foresee(ctx context.Context, p plan.Plan) plan.Observed {
	after, wrote := maps.Clone(f.observed), make(plan.Observed, len(p.Writes))
	for _, w := range p.Writes {
		f.cache.wrote(w.Entry)
		wrote[w.Key] = plan.File{Kind: plan.Regular, Digest: w.Digest} // when it changed the next look tells
	}
	f.merge(after, wrote)
	var removed []plan.Field
	for _, r := range p.Removes {
		delete(after, r.Key)
		removed = append(removed, r.Field)
	}
	f.Units.Disturb(ctx, f.inputs(f.observed, nil), f.inputs(after, nil), removed)
	return after
}

// wrote takes in what is on disk once p was carried out.
func (f *Files) wrote(p plan.Plan, after plan.Observed) (written []Written) {
	f.see(after)
	for _, w := range p.Writes {
		f.cache.at[w.Key] = w.Digest
		delete(f.unsynced, w.Key)
		if f.conflicts.left != nil {
			f.conflicts.left[w.Key] = w.Digest
		}
		f.writes++
		written = append(written, Written{Write: w, Replaced: f.cache.contents[w.Before].Certs})
	}
	return written
}

// doubt marks what a failed commit may have left undurable: after a failed fsync the bytes can be read and still be
// lost, so the next reconcile stages them anew.
func (f *Files) doubt(p plan.Plan) {
	f.unswept = true
	for _, w := range p.Writes {
		f.unsynced[w.Key] = true
	}
}

// inputs tells what units read if o is what is on disk.
func (f *Files) inputs(o plan.Observed, doubts map[plan.Key]string) func(unit string) unitplan.Inputs {
	return func(unit string) unitplan.Inputs {
		return unitplan.InputsOf(unit, f.Policy, o, f.cache.contents, doubts)
	}
}

// Sweep removes what interrupted commits left beside managed files.
func (f *Files) Sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	swept, err := f.Writer.Sweep(ctx)
	f.unswept = err != nil
	if err != nil {
		f.Log.Warn("sweeping after an interrupted commit", zap.Error(err))
	}
	for _, path := range swept {
		f.Log.Info("removed what an interrupted commit left", zap.String("path", path))
	}
}

// cache remembers which bytes were last seen where, and which certificates they hold, so that
// looking at an unchanged host moves no content and parses nothing. It is a cache: what it knows of
// a file never replaces looking at it.
type cache struct {
	at       map[plan.Key]plan.Digest
	contents map[plan.Digest]pki.Content
}

func newCache() cache {
	return cache{at: make(map[plan.Key]plan.Digest), contents: make(map[plan.Digest]pki.Content)}
}

// learn takes in what was observed and forgets every content that is neither on disk nor desired.
func (c *cache) learn(o plan.Observed, d plan.Desired) {
	fresh := newCache()
	for _, e := range d.Entries {
		fresh.wrote(e)
	}
	c.see(o)
	for key, f := range o {
		// A file whose bytes were not sent is not in at: it is asked for with them the next time.
		if content, ok := c.contents[f.Digest]; ok && f.Kind == plan.Regular {
			fresh.contents[f.Digest], fresh.at[key] = content, f.Digest
		}
	}
	*c = fresh
}

// see takes in what was observed of some files.
func (c *cache) see(o plan.Observed) {
	for key, f := range o {
		if _, ok := c.contents[f.Digest]; !ok && f.Kind == plan.Regular && plan.DigestOf(f.Data) == f.Digest {
			c.contents[f.Digest] = pki.Read(f.Data)
		}
		if _, ok := c.contents[f.Digest]; ok {
			c.at[key] = f.Digest
		}
	}
}

// wrote takes in what is on disk because we put it there.
func (c *cache) wrote(e plan.Entry) {
	c.contents[e.Digest] = pki.Content{Certs: e.Certs, Whole: len(e.Certs) > 0}
}
