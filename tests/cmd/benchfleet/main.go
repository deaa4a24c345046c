// SPDX-License-Identifier: Apache-2.0

// Command benchfleet measures what a fleet costs one real API server, and how soon it follows: it runs hundreds or
// thousands of agents in processes of its own, each agent with the code of the product, an identity that it got with a token, a
// connection and a tree of files of its own, beside the real controller.
//
// It prints each figure beside its goal. API server, etcd, controller and all agents share this machine, so the times
// are longer than where every node has processors of its own; the network is the loopback, so a large object costs
// less. Times mean nothing across machines: the update has a baseline of the same run, which are as many watchers with
// connections of their own that write nothing. What else the machine does is in the load average, which is above zero
// by the fleet's own work.
//
// Agents are put together as "node-cert-agent run --root" does it, with the shipped settings, except that holds and
// the trust source are off, and that no agent has inotify, whose instances are limited. Their files are in memory if
// /dev/shm is. With -check it exits 1 if a goal is missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

// options say what is measured, and how often.
type options struct {
	parts           []string
	sizes           []int
	rounds, sources int
	share           int // agents in one process
	signed          bool
	limit           time.Duration
}

// part is one kind of measurement.
type part struct {
	name string
	run  func(context.Context, *env) error
}

// parts in the order in which they run. All after boot need it.
var parts = []part{
	{"source", fromSource},
	{"baseline", baseline},
	{"metadata", metadata},
	{"boot", boot},
	{"memory", held},
	{"update", update},
	{"status", status},
	{"junk", junk},
	{"restart", restart},
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == asAgents {
		fail(agents(context.Background(), os.Stdin, os.Stdout))
		return
	}
	var p options
	only := flag.String("parts", "", "measure only these, a `LIST` with commas of: source baseline metadata boot memory "+
		"update status junk restart; boot is needed by what follows it")
	sizes := flag.String("nodes", "500,2000,5000", "run as many agents as each `NUMBER` says, one size after the other")
	flag.IntVar(&p.rounds, "n", 5, "`ROUNDS` of an update")
	flag.IntVar(&p.sources, "n-sources", 100, "`CHANGES` of a source")
	flag.IntVar(&p.share, "per-process", 1500, "run at most this `NUMBER` of agents in one process")
	flag.BoolVar(&p.signed, "signed", false, "sign the identities of the fleet here with the cluster's CA: the boot is "+
		"quick and asks no approver. Renewals and junk ask it")
	flag.DurationVar(&p.limit, "limit", 15*time.Minute, "`TIME` that the whole fleet may take for one step")
	check := flag.Bool("check", false, "exit with 1 if a goal is missed")
	flag.Parse()
	if *only != "" {
		p.parts = strings.Split(*only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	t := &figures.Table{}
	err := p.read(*sizes)
	if err == nil {
		err = measure(ctx, p, t)
	}
	printed := t.Print(os.Stdout) // what was measured before a failure, too
	fail(errors.Join(err, printed))
	if *check && t.Over {
		os.Exit(1)
	}
}

// fail ends the program because of err, if it is one.
func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchfleet:", err)
		os.Exit(1)
	}
}

// read checks what is asked for.
func (p *options) read(sizes string) error {
	for _, name := range p.parts {
		if !slices.ContainsFunc(parts, func(k part) bool { return k.name == name }) {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 10000 {
			return fmt.Errorf("-nodes %q is no number from 1 to 10000", text)
		}
		p.sizes = append(p.sizes, n)
	}
	if p.rounds < 1 || p.sources < 1 || p.share < 1 {
		return errors.New("-n, -n-sources and -per-process are at least 1")
	}
	return nil
}

func measure(ctx context.Context, p options, t *figures.Table) error {
	if err := manyFiles(); err != nil {
		return err
	}
	bin, err := os.MkdirTemp("", "benchfleet-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(bin) }()
	for _, name := range []string{"node-cert-controller", "kubectl-node_certs"} {
		if err := cluster.Build(ctx, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	for _, n := range p.sizes {
		if err := size(ctx, p, n, bin, t); err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
		debug.FreeOSMemory()
	}
	return nil
}

// perAgent is how many files an agent may have open: two connections, directories and locks.
const perAgent = 6

// mayOpen tells whether a process that may have so many open files can run its share of n agents, and another one serve
// all, which have two connections each while they get an identity.
func (p options) mayOpen(n int, limit uint64) error {
	if need := uint64(min(n, p.share) * perAgent); need > limit {
		return fmt.Errorf("a process of agents needs %d open files, and may have %d", need, limit)
	}
	if need := uint64(n * 2); need > limit {
		return fmt.Errorf("the API server needs %d open files, and may have %d", need, limit)
	}
	return nil
}

// manyFiles has this process keep as many open as the system lets anybody.
func manyFiles() error {
	text, err := os.ReadFile("/proc/sys/fs/nr_open")
	if err != nil {
		return err
	}
	most, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return err
	}
	err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most})
	if errors.Is(err, os.ErrPermission) {
		return nil // Go has raised it to the most that this user may have
	}
	return err
}

// size measures one size of the fleet.
func size(ctx context.Context, p options, n int, bin string, t *figures.Table) (err error) {
	t.Head("%d nodes, load average %s", n, figures.Load())
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	e, err := newEnv(ctx, p, n, bin, t)
	if err != nil {
		return err
	}
	e.fail = fail
	defer func() { err = errors.Join(err, e.stop()) }()
	for _, k := range parts {
		if len(p.parts) > 0 && !slices.Contains(p.parts, k.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s %d nodes, %s, load %s\n", time.Now().Format(time.TimeOnly), n, k.name, figures.Load())
		if err := k.run(ctx, e); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	t.Note("load average at the end", "%s", figures.Load())
	return nil
}
