// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/identity"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/source"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
	"github.com/node-cert-agent/node-cert-agent/agent/writer"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
)

// Places of the host's contract, and the pauses of the service: see cmd/node-cert-agent.
const (
	stateDir     = "/var/lib/node-cert-agent"
	runtimeDir   = "/run/node-cert-agent"
	bootstrapDir = "/etc/node-cert-agent/bootstrap.d"
	fragment     = "/etc/node-cert-agent/config.d/50-bench.yaml"

	settleDelay  = 20 * time.Millisecond
	retryMin     = time.Second
	retryMax     = time.Minute
	breakerPause = 30 * time.Minute
	reportMost   = 13 * time.Second // within which a node has reported a change
)

// node is one agent, put together as "node-cert-agent run --root" does it, but for inotify: its instances are
// too few for a fleet on one machine.
type node struct {
	name, root string
	settings   config.Settings
	// wrote is told of each commit that succeeded.
	wrote func(plan.Commit)
	warn  func(error)
}

// prepare makes the node's tree, with a bootstrap credential unless that is empty, and the directories of managed files.
func (n *node) prepare(kubeconfig []byte) error {
	for _, dir := range []string{filepath.Dir(controllerconfig.KubeletCA), filepath.Dir(controllerconfig.CloudCA),
		filepath.Dir(controllerconfig.Anchors), controllerconfig.CertsD, stateDir, runtimeDir} {
		if err := os.MkdirAll(filepath.Join(n.root, dir), 0o700); err != nil {
			return err
		}
	}
	put := func(path, data string) error {
		path = filepath.Join(n.root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(data), 0o600)
	}
	if len(kubeconfig) > 0 {
		if err := put(bootstrapDir+"/10-fleet.kubeconfig", string(kubeconfig)); err != nil {
			return err
		}
	}
	if err := put(fragment, settings+"node: {name: "+n.name+"}\n"); err != nil {
		return err
	}
	var err error
	n.settings, err = config.Load(config.Options{Root: n.root})
	for i := range n.settings.Policy.Files {
		n.settings.Policy.Files[i].UID, n.settings.Policy.Files[i].GID = os.Geteuid(), os.Getegid()
	}
	n.settings.Policy.Units = nil
	return err
}

// run works until ctx ends.
func (n *node) run(ctx context.Context) error {
	tree, err := disk.Open(n.root)
	if err != nil {
		return err
	}
	dir, err := tree.Directory(stateDir)
	if err != nil {
		return err
	}
	if err := dir.Mkdir(state.OperatorDir); err != nil {
		return err
	}
	release, err := dir.Lock()
	if err != nil {
		return err
	}
	defer release()
	s, trail, log := n.settings, audit.Text(io.Discard), zap.NewNop()
	local := writer.New(s.Policy.Files, tree, validate).WithCredentials(writer.Consume(s.Consume), false)
	reporter := report.New(func(name string, data []byte) error {
		return tree.WriteFile(filepath.Join(runtimeDir, name), data, 0o644)
	}, false)
	object := report.NewObject(report.Shipped(n.name, n.warn))
	src := source.New(s, log)
	a := &agent.Agent{Readings: src.Readings(), FileWatcher: agenttest.FileWatcher(nil), Writer: noted{local, n.wrote},
		Trust: src.Trust(), Store: state.Open(dir), Trail: trail,
		Overrides: func(last state.Overrides) (state.Overrides, error) { return state.ReadOverrides(dir, last) },
		Report:    report.Fanout{Reporter: reporter, Object: object}, Clock: systemClock{}, Log: log, Policy: s.Policy,
		Times: agent.Times{Resync: s.Resync, SettleDelay: settleDelay, RetryMin: retryMin, RetryMax: retryMax, Probe: s.ProbeTimeout,
			Times: unitactions.Times{BatchWindow: s.Actions.BatchWindow, RandomizedDelay: s.Actions.RandomizedDelay,
				Job: s.Actions.Timeout, Breaker: breakerPause}},
		Node: n.name, Version: "0.0.0-bench", Remember: n.remember}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		src.FollowIdentity(ctx, n.identity(dir, local, trail), object.Run)
	}()
	defer func() { <-ended }()
	if err := a.Run(ctx); err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	return nil
}

func (n *node) identity(dir *disk.Directory, local *writer.Local, trail *audit.Trail) identity.Options {
	i := n.settings.Identity
	return identity.Options{Node: n.name, Lifetime: i.Lifetime, Dir: dir, Bootstrap: local, Pins: n.settings.Pins,
		FollowHint: n.settings.FollowHint, Trail: trail,
		Times: identity.Times{PollInterval: i.PollInterval, IdlePollInterval: i.IdlePollInterval,
			ApprovalPollMax: i.ApprovalPollMax, CheckInterval: i.CheckInterval,
			SuspectAfter: i.SuspectAfter, DeniedMin: i.DeniedMin, DeniedMax: i.DeniedMax}}
}

// remember validates kept bytes again.
func (n *node) remember(k plan.Key, data []byte) (plan.Entry, error) {
	spec, ok := n.settings.Policy.File(k.Field)
	if !ok {
		return plan.Entry{}, fmt.Errorf("this host has no field %s", k.Field)
	}
	return spec.Entry(k.Name, data, time.Time{})
}

func validate(r plan.FileSpec, data []byte) ([]pki.Cert, error) { return r.Check(data) }

// noted is the writer's code, and tells of each commit that succeeded.
type noted struct {
	*writer.Local
	wrote func(plan.Commit)
}

// Commit implements files.Writer.
func (n noted) Commit(ctx context.Context, c plan.Commit) error {
	err := n.Local.Commit(ctx, c)
	if err == nil {
		n.wrote(c)
	}
	return err
}

// systemClock is time as this machine has it.
type systemClock struct{ clock.System }

// Uptime implements clock.Host.
func (systemClock) Uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux since 2.6.39 has it
	}
	return time.Duration(t.Nano())
}

// Boot implements clock.Host.
func (systemClock) Boot() string { return bootID() }

var bootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // empty is an ID as well
	return strings.TrimSpace(string(b))
})
