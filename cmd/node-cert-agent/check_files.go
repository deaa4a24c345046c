// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/node-cert-agent/node-cert-agent/agent/check"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

const writerService = "node-cert-agent-writer.service"

// managed asks the writer for the managed files that are known: one for each row that has one, and of
// the others those that the service has published.
func (p *survey) managed(ctx context.Context) {
	if !p.facts.Plain && !p.facts.Root && !confined() {
		return // the socket is closed to everybody else
	}
	keys := p.wiring.keys(p.settings.Policy)
	files, err := observe(ctx, p.wiring.half(p.settings), keys)
	p.facts.Writer.Asked = true
	if err != nil {
		p.facts.Writer.Problem = err.Error()
		return
	}
	for i, k := range keys {
		path := pathOf(p.settings.Policy, k)
		p.facts.Files = append(p.facts.Files, check.File{Key: k, Path: path, File: files[i], Label: label(p.on(path))})
	}
}

// ask asks once more, as the service would.
func (p *survey) ask(ctx context.Context) {
	if p.facts.Writer.Asked && p.facts.Writer.Problem == "" {
		if _, err := observe(ctx, p.wiring.half(p.settings), p.wiring.keys(p.settings.Policy)); err != nil {
			p.facts.Writer.Problem = err.Error()
		}
	}
}

// mounts reads the table of the host, and that of the writer, which the question before has started.
func (p *survey) mounts() {
	if p.facts.Plain {
		return
	}
	host, _ := os.ReadFile("/proc/self/mountinfo")
	p.facts.Mounts = string(host)
	if !p.facts.Root {
		return
	}
	if pids, _ := processes(writerService); len(pids) > 0 {
		table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pids[0])) // what is not seen is said to be unknown
		p.facts.Writer.Mounts = string(table)
	}
}

// keys are the managed files that are known without the object.
func (w *wiring) keys(p plan.Policy) (keys []plan.Key) {
	for _, row := range p.Rows {
		if !row.Many() {
			keys = append(keys, plan.Key{Row: row.ID})
		}
	}
	s, err := currentStatus(w.tree)
	if err != nil {
		return keys
	}
	for _, f := range s.Files {
		if row, ok := p.Row(f.Row); ok && row.Many() {
			if _, err := row.Path(f.Name); err == nil {
				keys = append(keys, f.Key)
			}
		}
	}
	return keys
}

func pathOf(p plan.Policy, k plan.Key) string {
	row, _ := p.Row(k.Row)
	path, _ := row.Path(k.Name) // keys has tried it
	return path
}

func observe(ctx context.Context, h half, keys []plan.Key) ([]plan.File, error) {
	queries := make([]plan.Query, len(keys))
	for i, k := range keys {
		queries[i].Key = k
	}
	if len(queries) == 0 {
		return nil, nil // a question for nothing is none
	}
	return h.Observe(ctx, queries)
}
