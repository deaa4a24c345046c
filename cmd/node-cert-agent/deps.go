// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/consumers"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/files"
	"github.com/node-cert-agent/node-cert-agent/agent/identity"
	"github.com/node-cert-agent/node-cert-agent/agent/log"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/probe"
	"github.com/node-cert-agent/node-cert-agent/agent/reloader"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/unitactions"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
	"github.com/node-cert-agent/node-cert-agent/agent/writer"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// Places of the host's contract.
const (
	stateDir       = "/var/lib/node-cert-agent"
	runtimeDir     = "/run/node-cert-agent"
	bootstrapDir   = "/etc/node-cert-agent/bootstrap.d"
	writerSocket   = "/run/node-cert-agent-writer.sock"
	reloaderSocket = "/run/node-cert-agent-reloader.sock"
	signerSocket   = "/run/node-cert-agent-signer.sock"
	renewDir       = "/run/node-cert-agent-renew"
	signerDir      = "/var/lib/node-cert-agent-signer"
	serviceUser    = "node-cert-agent"
	renewUser      = "node-cert-agent-renew"
)

const (
	retryMin = time.Second
	retryMax = time.Minute
	// breakerPause is how long a unit whose action failed again and again is left alone.
	breakerPause = 30 * time.Minute
	// settleDelay is how long the agent does nothing else after it published a change, so that consumers read it
	// soon. A kubelet needs some milliseconds; units wait a hundred times longer for further changes anyway.
	settleDelay = 20 * time.Millisecond
)

// plain reports whether the agent works on a tree of its own rather than on the host.
func (f *flags) plain() bool { return f.root != "/" }

func (f *flags) configOptions() config.Options {
	return config.Options{Root: f.root, Dirs: f.configDirs}
}

// load reads the configuration. On a tree of one's own files belong to oneself: only root can give
// them away.
func (f *flags) load() (config.Settings, error) {
	s, err := config.Load(f.configOptions())
	if err != nil {
		return s, process.Misused(err)
	}
	if f.plain() && os.Geteuid() != 0 {
		for i := range s.Policy.Files {
			s.Policy.Files[i].UID, s.Policy.Files[i].GID = os.Geteuid(), os.Getegid()
		}
	}
	return s, nil
}

// configured runs a command with the settings of this host.
func (f *flags) configured(run func(*cobra.Command, config.Settings) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		s, err := f.load()
		if err != nil {
			return err
		}
		return run(c, s)
	}
}

// deps are what the commands work with. They outlive one configuration.
type deps struct {
	plain   bool
	options config.Options
	tree    *disk.Tree
	log     *zap.Logger
	trail   *audit.Trail
	report  *report.Reporter
	client  *writer.Client
	systemd *reloader.Client
}

func newDeps(f *flags, stderr io.Writer) (*deps, error) {
	tree, err := disk.Open(f.root)
	if err != nil {
		return nil, err
	}
	d := &deps{plain: f.plain(), options: f.configOptions(), tree: tree, log: newLog(f, stderr),
		trail: audit.Journal(stderr)}
	d.report = report.New(func(name string, data []byte) error {
		return tree.WriteFile(filepath.Join(runtimeDir, name), data, 0o644)
	}, !d.plain)
	if d.plain {
		d.trail = audit.Text(stderr)
	} else {
		d.client = writer.Dial(writerSocket)
		d.systemd = reloader.Dial(reloaderSocket, bootID())
	}
	return d, nil
}

func (d *deps) close() {
	if d.systemd != nil {
		_ = d.systemd.Close()
		_ = d.client.Close()
	}
}

// privileged is the writer, as both loops of the agent see it.
type privileged interface {
	files.Writer
	identity.Bootstrap
}

// privileged is the writer's process, or in plain mode the same code in this process.
func (d *deps) privileged(s config.Settings) privileged {
	if d.plain {
		return newWriter(s, d.tree)
	}
	return d.client.For(s.Policy.Files)
}

// policy is what is configured; in plain mode there is no systemd, and so no allowlist.
func (d *deps) policy(s config.Settings) unitplan.Policy {
	p := s.Policy
	if d.plain {
		p.Units = nil
	}
	return p
}

// units is nil where there is nothing to ask systemd for.
func (d *deps) units(s config.Settings) unitactions.Systemd {
	if len(d.policy(s).Units) == 0 {
		return nil
	}
	return d.systemd
}

// prober is nil in plain mode: the servers of this machine do not read that tree.
func (d *deps) prober() consumers.Prober {
	if d.plain {
		return nil
	}
	return probe.Prober{Clock: systemClock{}}
}

func (d *deps) times(s config.Settings) agent.Times {
	t := agent.Times{Resync: s.Resync, SettleDelay: settleDelay, RetryMin: retryMin, RetryMax: retryMax,
		Probe: s.ProbeTimeout, Times: unitactions.Times{BatchWindow: s.Actions.BatchWindow,
			RandomizedDelay: s.Actions.RandomizedDelay, Job: s.Actions.Timeout, Breaker: breakerPause}}
	if !d.plain {
		t.Watchdog, _ = daemon.SdWatchdogEnabled(false)
	}
	return t
}

// node is the name of this node in the cluster, or empty as long as it cannot be known. It seeds what
// must differ between the hosts of a fleet.
func (d *deps) node(s config.Settings) string {
	name, err := config.NodeName(d.options, s)
	if err != nil {
		d.log.Warn("the node's name may be another one", zap.String("name", name), zap.Error(err))
	}
	return name
}

// stateObject is this node's.
func (d *deps) stateObject(node string) *report.Object {
	return report.NewObject(report.Shipped(node, func(err error) {
		d.log.Warn("writing the node's state object", zap.Error(err))
	}))
}

// newWriter is the writer's code. It judges bytes by the fields, whatever the agent says of them.
func newWriter(s config.Settings, tree *disk.Tree) *writer.Local {
	validate := func(r plan.FileSpec, data []byte) ([]pki.Cert, error) { return r.Check(data) }
	return writer.New(s.Policy.Files, tree, validate).WithCredentials(writer.Consume(s.Consume), s.KubeletIdentity)
}

// revalidate validates kept bytes again, with the field as it is configured now.
func revalidate(p unitplan.Policy) func(plan.Key, []byte) (plan.Entry, error) {
	return func(k plan.Key, data []byte) (plan.Entry, error) {
		spec, ok := p.File(k.Field)
		if !ok {
			return plan.Entry{}, fmt.Errorf("this host has no field %s", k.Field)
		}
		return spec.Entry(k.Name, data, time.Time{})
	}
}

// newLog is the diagnostic log. In plain mode there is no journal. The audit trail is not part of it.
func newLog(f *flags, stderr io.Writer) *zap.Logger {
	if !f.plain() && log.InJournal() {
		return log.Journal(audit.Identifier, f.log, stderr)
	}
	return log.Lines(f.log, stderr)
}
