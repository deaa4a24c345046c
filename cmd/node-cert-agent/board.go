// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

// A node reports what changed at most this often, and otherwise this seldom: the approver takes a node
// that was silent for two hours for dead.
const (
	reportLeast     = 10 * time.Second
	reportHeartbeat = time.Hour
)

// board passes each status on to the node's state object, once there is an identity to write it with.
type board struct {
	mu     sync.Mutex
	last   *report.Status
	object *report.Object
}

// run keeps the object until ctx ends.
func (b *board) run(ctx context.Context, o *report.Object) {
	b.mu.Lock()
	b.object = o
	if b.last != nil {
		o.Publish(*b.last)
	}
	b.mu.Unlock()
	o.Run(ctx)
}

func (b *board) publish(s report.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last = &s; b.object != nil {
		b.object.Publish(s)
	}
}

// published is the reporter with the board beside it.
type published struct {
	*report.Reporter
	board *board
}

// Publish implements agent.Reporter.
func (p published) Publish(s report.Status) error {
	p.board.publish(s)
	return p.Reporter.Publish(s)
}

// stateObject is this node's, written as the agent.
func (w *wiring) stateObject(s config.Settings, client *http.Client, server *url.URL) *report.Object {
	return report.NewObject(report.ObjectOptions{Client: client, Server: server, Node: w.node(s), Least: reportLeast, Heartbeat: reportHeartbeat,
		After: time.After, Now: time.Now, Trouble: func(err error) { w.log.Warn("writing the node's state object", zap.Error(err)) }})
}
