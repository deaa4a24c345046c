// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"os"

	"github.com/node-cert-agent/node-cert-agent/agent/check"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Files asks the writer for the managed files that are known without the object: one for each field that has one, and
// of the others those that the service has published.
func Files(ctx context.Context, a Access, p plan.Policy) ([]check.File, error) {
	files := knownFiles(a, p)
	if len(files) == 0 {
		return nil, nil // a question for nothing is none
	}
	queries := make([]plan.Query, len(files))
	for i, f := range files {
		queries[i].Key = f.Key
	}
	seen, err := a.Writer.Observe(ctx, queries)
	if err != nil {
		return nil, err
	}
	for i := range files {
		files[i].File = seen[i]
	}
	return files, nil
}

// knownFiles gives those files, with their paths and nothing else.
func knownFiles(a Access, p plan.Policy) (files []check.File) {
	add := func(spec plan.FileSpec, name string) {
		if path, err := spec.PathOf(name); err == nil {
			files = append(files, check.File{Key: plan.Key{Field: spec.Field, Name: name}, Path: path})
		}
	}
	for _, spec := range p.Files {
		if !spec.Many() {
			add(spec, "")
		}
	}
	published, err := a.Status()
	if err != nil {
		return files
	}
	for _, f := range published.Files {
		if spec, ok := p.File(f.Field); ok && spec.Many() {
			add(spec, f.Name)
		}
	}
	return files
}

// managed asks the writer for the managed files.
func (c *collector) managed(ctx context.Context) {
	if !c.facts.Plain && !c.facts.Root && !c.isServiceUser() {
		return // the socket is closed to everybody else
	}
	files, err := Files(ctx, c.access, c.facts.Policy.Policy)
	c.facts.Writer.Asked, c.facts.Writer.Problem = true, problem(err)
	for _, f := range files {
		f.Label = label(c.on(f.Path))
		c.facts.Files = append(c.facts.Files, f)
	}
}

// ask asks once more, as the service would.
func (c *collector) ask(ctx context.Context) {
	if c.facts.Writer.Asked && c.facts.Writer.Problem == "" {
		_, err := Files(ctx, c.access, c.facts.Policy.Policy)
		c.facts.Writer.Problem = problem(err)
	}
}

// mounts reads the table of the host, and that of the writer, which the question before has started.
func (c *collector) mounts() {
	if c.facts.Plain {
		return
	}
	host, _ := os.ReadFile("/proc/self/mountinfo")
	c.facts.Mounts = string(host)
	if !c.facts.Root {
		return
	}
	if pids, _ := processes(writerService); len(pids) > 0 {
		table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pids[0])) // what is not seen is said to be unknown
		c.facts.Writer.Mounts = string(table)
	}
}
