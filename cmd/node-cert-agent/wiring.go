// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/agent/units"
	"github.com/node-cert-agent/node-cert-agent/agent/writer"
)

// Places of the host's contract.
const (
	stateDir     = "/var/lib/node-cert-agent"
	runtimeDir   = "/run/node-cert-agent"
	writerSocket = "/run/node-cert-agent-writer.sock"
	serviceUser  = "node-cert-agent"
)

const (
	retryMin = time.Second
	retryMax = time.Minute
)

// plain reports whether the agent works on a tree of its own rather than on the host.
func (f *flags) plain() bool { return filepath.Clean(f.root) != "/" }

func (f *flags) configOptions() config.Options {
	return config.Options{Root: f.root, Dirs: f.configDirs}
}

// wiring is what lives longer than one configuration.
type wiring struct {
	plain  bool
	tree   *disk.Tree
	log    *zap.Logger
	trail  *audit.Trail
	store  *state.Store
	report *report.Reporter
	client *writer.Client
	bus    *units.Conn
}

func wire(f *flags, stderr io.Writer) (*wiring, error) {
	tree, err := disk.Open(f.root)
	if err != nil {
		return nil, err
	}
	w := &wiring{plain: f.plain(), tree: tree, log: newLog(stderr, f.plain()), trail: audit.Journal(stderr)}
	if w.plain {
		w.trail = audit.Text(stderr)
		for _, d := range []string{stateDir, runtimeDir} {
			if err := os.MkdirAll(filepath.Join(f.root, d), 0o700); err != nil {
				return nil, fmt.Errorf("making our own directories: %w", err)
			}
		}
	}
	own, err := tree.Directory(stateDir)
	if err != nil {
		return nil, fmt.Errorf("opening the state directory: %w", err)
	}
	w.store = state.Open(own)
	w.report = report.New(func(name string, data []byte) error {
		return tree.WriteFile(filepath.Join(runtimeDir, name), data, 0o644)
	}, !w.plain)
	if !w.plain {
		w.client = writer.Dial(writerSocket)
		w.bus = units.New()
	}
	return w, nil
}

func (w *wiring) close() {
	_ = w.log.Sync()
	if w.bus != nil {
		w.bus.Close()
	}
}

// writer is the privileged half, or in plain mode the same code in this process.
func (w *wiring) writer(s config.Settings) agent.Writer {
	if w.plain {
		return writer.New(s.Policy.Rows, w.tree)
	}
	return w.client
}

// units is nil where there is nothing to ask systemd for.
func (w *wiring) units(s config.Settings) agent.Units {
	if w.plain || len(s.Policy.Units) == 0 {
		return nil
	}
	return w.bus
}

func (w *wiring) times(s config.Settings) agent.Times {
	t := agent.Times{Resync: s.Follow.Resync, Coalesce: s.Actions.Coalesce, Spread: s.Actions.Spread, RetryMin: retryMin, RetryMax: retryMax}
	if !w.plain {
		t.Watchdog, _ = daemon.SdWatchdogEnabled(false)
	}
	return t
}

// node is the name that seeds what must differ between the hosts of a fleet.
func (w *wiring) node(s config.Settings) string {
	if s.NodeName != "" {
		return s.NodeName
	}
	name, err := os.Hostname()
	if err != nil || name == "localhost" || strings.HasPrefix(name, "localhost.") {
		return ""
	}
	return name
}

// rememberer validates kept bytes again, with the row as it is configured now.
func rememberer(p plan.Policy) func(plan.Key, []byte) (plan.Entry, error) {
	return func(k plan.Key, data []byte) (plan.Entry, error) {
		row, ok := p.Row(k.Row)
		if !ok {
			return plan.Entry{}, fmt.Errorf("this host has no row %s", k.Row)
		}
		return row.Entry(k.Name, data, time.Time{})
	}
}

// driftDirs are the directories whose change may mean that a managed file drifted.
func driftDirs(f *flags, s config.Settings) []string {
	var dirs []string
	for _, r := range s.Policy.Rows {
		dirs = append(dirs, filepath.Join(f.root, r.Directory()))
	}
	return dirs
}

// giveBack returns memory after a change: changes are rare, and this is the cheap lever on resident
// memory where a tight GOMEMLIMIT is a trap (docs/performance.md).
func giveBack() { debug.FreeOSMemory() }

type systemClock struct{}

func (systemClock) Now() time.Time                         { return time.Now() }
func (systemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// newLog is the diagnostic log on standard error, which systemd puts into the journal: without time
// stamps, and with the level as sd-daemon(3) reads it. The audit trail is not part of it.
func newLog(w io.Writer, plain bool) *zap.Logger {
	c := zapcore.EncoderConfig{MessageKey: "m", LevelKey: "l", ConsoleSeparator: " ", EncodeDuration: zapcore.StringDurationEncoder,
		EncodeLevel: func(l zapcore.Level, e zapcore.PrimitiveArrayEncoder) { e.AppendString(syslogLevel(l, plain)) }}
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(c), zapcore.Lock(zapcore.AddSync(w)), zap.InfoLevel))
}

func syslogLevel(l zapcore.Level, plain bool) string {
	if plain {
		return l.String() + ":"
	}
	switch l {
	case zapcore.DebugLevel:
		return "<7>"
	case zapcore.InfoLevel:
		return "<6>"
	case zapcore.WarnLevel:
		return "<4>"
	}
	return "<3>"
}
