// SPDX-License-Identifier: Apache-2.0

// Command bench measures the product on real parts, once through, and prints each figure beside its
// budget: how long a change takes to the disk, what both halves cost at rest and at work, how large
// the binary is, how soon a started agent is ready and has written, what it leaves alone, how soon a token leads to a
// file, what a renewal holds up, how often the API server is asked, and what the largest object costs.
//
// Times mean nothing across machines and little across hours of one machine, so they are ratios to a
// baseline measured in the same run: the least program that does the job without any of the care (see
// the command baseline beside this one). The comparison is made fair as follows.
//
// Agent and baseline run on the same host, as services, each in a process of its own: the agent as it is
// shipped, unprivileged with its root writer behind the socket, the baseline as root. Both reach the API
// server through the same port of the host and write to directories of the same overlay on the same
// disk. Each follows an object of its own with content of the same size and shape, by a watch with a
// field selector, so that an API server sends a change to one of them only and the other sleeps:
// neither competes with the other or is stopped and woken. A round changes both objects, in random
// order, with a pause before each change that lets all work after the last one end. So whatever the
// machine does in the meantime hits both alike.
//
// A time begins when the answer to the update is read and ends when the kernel reports the rename
// into place; the bytes are compared afterwards. The pause means that both are measured awake, with
// warm caches; a short series with longer rests is printed beside it, without a budget.
//
// The last parts are about identities: the agent gets its own with a token, from the real approver, on
// the same environment; only renewals, which have to come every few seconds, have one whose signer issues
// short-lived certificates, and first boots one whose host reboots.
//
// It needs root, and about half an hour. With -check it exits 1 if a budget is broken.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

// plan says what is measured, and how often.
type plan struct {
	parts                                            []string
	rounds, filesRounds, restRounds, starts, reloads int
	tokens, renewals, kubeletRounds, boots           int
	idle, quiet                                      time.Duration
}

// part is one kind of measurement.
type part struct {
	name string
	run  func(context.Context, *env, plan, *figures.Table) error
}

// parts in the order in which they run: the memory part starts the agent anew, and the idle part
// follows it. From the part own on the agent has an identity of its own in place of a kubeconfig.
var parts = []part{
	{"latency", latency},
	{"files", lastFile},
	{"rest", afterRest},
	{"memory", memory},
	{"idle", idle},
	{"size", size},
	{"start", start},
	{"ready", ready},
	{"steady", steady},
	{"kubelet", kubelet},
	{"own", own},
	{"token", token},
	{"boot", boot},
	{"requests", requests},
	{"renewal", renewal},
	{"reload", reload},
	{"plan", planning},
	{"large", large},
}

func main() {
	var p plan
	only := flag.String("parts", "", "measure only these, a `LIST` with commas of: latency files rest memory idle size "+
		"start ready steady kubelet own token boot requests renewal reload plan large")
	flag.IntVar(&p.rounds, "n", 1000, "`ROUNDS` of one changed file")
	flag.IntVar(&p.filesRounds, "n-files", 200, "`ROUNDS` of 25 changed files")
	flag.IntVar(&p.restRounds, "n-rest", 30, "`ROUNDS` of one changed file after a rest")
	flag.IntVar(&p.starts, "n-starts", 30, "`STARTS` of each program")
	flag.IntVar(&p.reloads, "n-reloads", 400, "`RELOADS` of a unit, each way")
	flag.IntVar(&p.kubeletRounds, "n-kubelet", 100, "`ROUNDS` of a changed file and a kubelet")
	flag.DurationVar(&p.idle, "idle", 2*time.Minute,
		"`TIME` to watch both halves do nothing; the figures are those of a minute, and the runtime collects every second one")
	flag.IntVar(&p.tokens, "n-tokens", 100, "`STARTS` with nothing but a token")
	flag.IntVar(&p.boots, "n-boots", 10, "first `BOOTS` of the host")
	flag.IntVar(&p.renewals, "n-renewals", 20, "`RENEWALS` under load, one every 16 seconds")
	flag.DurationVar(&p.quiet, "quiet", 4*time.Minute, "`TIME` to count requests in while nothing happens")
	check := flag.Bool("check", false, "exit with 1 if a budget is broken")
	flag.Parse()
	if *only != "" {
		p.parts = strings.Split(*only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	t := &figures.Table{}
	if err := measure(ctx, p, t); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if err := t.Print(os.Stdout); err != nil || (*check && t.Over) {
		os.Exit(1)
	}
}

func measure(ctx context.Context, p plan, t *figures.Table) (err error) {
	for _, name := range p.parts {
		if !slices.ContainsFunc(parts, func(k part) bool { return k.name == name }) {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	e, err := newEnv(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if failure := e.stop(); err == nil {
			err = failure
		}
	}()
	for _, k := range parts {
		if len(p.parts) > 0 && !slices.Contains(p.parts, k.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s %s, load %s\n", time.Now().Format(time.TimeOnly), k.name, figures.Load())
		if err := k.run(ctx, e, p, t); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	t.Note("load average at the end", "%s", figures.Load())
	return nil
}
