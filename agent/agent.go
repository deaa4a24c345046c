// SPDX-License-Identifier: Apache-2.0

// Package agent is the loop: it waits until something happened (the ControllerConfig changed, a managed file
// drifted, a unit's job ended, a retry or the resync is due), plans, applies the plan and reports.
//
// It owns the order of things, and nothing else. What is known has one owner each: package desired what the host shall
// have, files the managed files, unitactions the units, consumers the servers that use files, state the memory. They
// know nothing of each other: the loop hands on what one gives and another needs. All decisions
// are in package plan; all effects are behind interfaces, and cmd plugs the concrete types in. One goroutine does all
// this, so there are no locks; unit jobs run beside it and report back through a channel.
//
// The order that it promises: what is claimed is durable before the commit; the intent is recorded
// before the first rename; an action is marked unknown, durably if anything can be, before it is
// dispatched; and no action is dispatched for a file that is not in order.
package agent

import (
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/consumers"
	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/files"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Reporter shows the status and speaks to systemd.
type Reporter interface {
	Ready() error
	Alive() error
	Publish(report.Status) error
}

// Agent is the loop with everything plugged in. Units may be nil when the allowlist is empty.
type Agent struct {
	// Readings are of the ControllerConfig. The channel carries the newest; older ones may be dropped.
	Readings    <-chan desired.Reading
	FileWatcher FileWatcher
	Writer      files.Writer
	Units       unitactions.Systemd
	// Prober may be nil; nobody is asked then whether they use a file.
	Prober consumers.Prober
	// Trust may be nil; the trust source then never shrinks.
	Trust Trust
	Store *state.Store
	// Overrides reads what the operator of this host set by hand: see desired.Options. It may be nil.
	Overrides func(last state.Overrides) (state.Overrides, error)
	Trail     audit.Recorder
	Report    Reporter
	Clock     clock.Host
	Log       *zap.Logger
	Policy    unitplan.Policy
	Times     Times
	// Random draws from [0, n), to spread retries; nil means math/rand. A simulation is repeatable only with
	// its own.
	Random func(n int64) int64
	// Node seeds what must differ between the hosts of a fleet.
	Node    string
	Version string
	// Built is a time that has certainly passed; zero if nothing is known.
	Built time.Time
	// Follow names directories beside those of managed files in which a change calls for a reconcile.
	Follow []string
	// Remember turns bytes that were kept back into entries, validating them again.
	Remember func(plan.Key, []byte) (plan.Entry, error)
	// Idle is called after each reconcile; it may give memory back to the system. It may be nil.
	Idle func()
}
