// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/source"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

func runCommand(f *flags) *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Follow the ControllerConfig until stopped",
		Long: `run is the service: it follows the controllerconfig, has the writer publish what it carries, and the
reloader act on allowlisted units. It works without privileges and never exits because the world is
bad. Its identity it gets by itself, with a credential in /etc/node-cert-agent/bootstrap.d, and keeps in
/var/lib/node-cert-agent. With --root it does the same on a tree of your own, in one process and without units.`,
		RunE: f.configured(func(c *cobra.Command, settings config.Settings) error {
			return f.asService(c.ErrOrStderr(), func(d *deps, dir *disk.Directory) error {
				v := &service{flags: f, deps: d, stateDir: dir, store: state.Open(dir), kubeconfig: kubeconfig}
				return v.run(c.Context(), settings)
			})
		}),
	}
	kubeconfigFlag(cmd, &kubeconfig,
		"take identity and address of the API server from a `FILE` that something else maintains")
	return cmd
}

// run is the service, from its start until ctx ends.
func (v *service) run(ctx context.Context, s config.Settings) (err error) {
	for ctx.Err() == nil {
		if s, err = v.runAgent(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// service runs agents one after the other, each with the configuration then in force.
type service struct {
	flags      *flags
	deps       *deps
	stateDir   *disk.Directory
	store      *state.Store
	kubeconfig string
}

// runAgent runs one agent until ctx ends or the configuration changed to another valid one, which
// it returns. Invalid configuration found on the way is reported, and the last valid settings stay.
func (v *service) runAgent(ctx context.Context, s config.Settings) (config.Settings, error) {
	ctx, cancel := context.WithCancel(ctx)
	var sources sync.WaitGroup
	defer sources.Wait() // two at a time would both write to the state directory
	defer cancel()
	next := make(chan config.Settings, 1)
	go func() {
		if changed, ok := v.awaitConfig(ctx, s); ok {
			next <- changed
			cancel()
		}
	}()
	d := v.deps
	watcher := d.watch()
	defer func() { _ = watcher.Close() }()
	src := source.New(s, d.log)
	a := v.agent(s, watcher)
	object := d.stateObject(a.Node)
	sources.Go(func() { v.runSource(ctx, s, src, object) })
	a.Readings, a.Prober = src.Readings(), d.prober()
	a.Overrides = func(last state.Overrides) (state.Overrides, error) {
		return state.ReadOverrides(v.stateDir, last) // what commands leave there
	}
	a.Trust, a.Idle = src.Trust(), freeMemoryWhenIdle()
	a.Report = withRenewal{report.Fanout{Reporter: d.report, Object: object}, v.flags}
	if err := a.Run(ctx); err != nil {
		return s, err
	}
	select {
	case s = <-next:
	default:
	}
	return s, nil
}

// runSource follows the ControllerConfig with the kubeconfig of the command line, or with our own identity.
func (v *service) runSource(ctx context.Context, s config.Settings, src *source.Source, object *report.Object) {
	if v.kubeconfig == "" {
		src.FollowIdentity(ctx, v.deps.identity(s, v.stateDir), object.Run)
		return
	}
	changes := v.deps.watch(filepath.Dir(v.kubeconfig))
	defer func() { _ = changes.Close() }()
	src.FollowKubeconfig(ctx, v.kubeconfig, changes.Changed())
}

// agent is everything plugged in but what differs between the service and a command.
func (v *service) agent(s config.Settings, watcher fileWatcher) *agent.Agent {
	d := v.deps
	return &agent.Agent{FileWatcher: rootedWatcher{watcher, v.flags.root}, Writer: d.privileged(s),
		Units: d.units(s), Store: v.store, Trail: d.trail, Report: d.report, Clock: systemClock{}, Log: d.log,
		Policy: d.policy(s), Times: d.times(s), Node: d.node(s), Version: version, Built: buildTime(),
		Follow: []string{stateDir + "/" + state.OperatorDir}, Remember: revalidate(s.Policy)}
}

// awaitConfig waits until the configuration is another valid one. It looks before it waits: the
// configuration may have changed between its reading and the watch.
func (v *service) awaitConfig(ctx context.Context, s config.Settings) (config.Settings, bool) {
	watcher := v.deps.watch(v.flags.configOptions().Watch()...)
	defer func() { _ = watcher.Close() }()
	last := ""
	for {
		changed, err := v.flags.load()
		switch {
		case err == nil && changed.Digest != s.Digest:
			v.deps.log.Info("the configuration changed")
			return changed, true
		case err == nil:
			last = ""
		case err.Error() != last:
			last = err.Error()
			v.deps.trail.Record(audit.Record{Kind: audit.ConfigRejected,
				Message: "changed configuration is invalid; the last valid settings stay in force"}.
				With(audit.Reason, last))
		}
		select {
		case <-ctx.Done():
			return s, false
		case <-watcher.Changed():
		}
	}
}

// watchDebounce is how long changes are collected for one notification.
const watchDebounce = 50 * time.Millisecond

// fileWatcher is an agent.FileWatcher that can be closed.
type fileWatcher interface {
	agent.FileWatcher
	Close() error
}

// watch announces changes in directories.
func (d *deps) watch(directories ...string) fileWatcher {
	fw, err := watch.NewFileWatcher(watchDebounce)
	if err != nil {
		d.log.Warn("changes of files will only be noticed by the resync", zap.Error(err))
		return noWatcher{}
	}
	if err := fw.Set(directories); err != nil {
		d.log.Warn("watching for changes", zap.Error(err))
	}
	return fw
}

// noWatcher takes the place of inotify where that fails: it announces nothing, and the resync has to do.
type noWatcher struct{}

func (noWatcher) Changed() <-chan struct{} { return nil }
func (noWatcher) Set([]string) error       { return nil }
func (noWatcher) Close() error             { return nil }

// rootedWatcher watches below root: the agent names paths of the host, the kernel those of the machine.
type rootedWatcher struct {
	fileWatcher
	root string
}

// Set implements agent.FileWatcher.
func (b rootedWatcher) Set(directories []string) error {
	real := make([]string, len(directories))
	for i, d := range directories {
		real[i] = filepath.Join(b.root, d)
	}
	return b.fileWatcher.Set(real)
}
