// SPDX-License-Identifier: Apache-2.0

// Command node-cert-controller is the cluster side of node-cert-agent: it approves the certificate requests of nodes.
//
// This package is flags, wiring and exit codes: 0 stopped by a signal, 1 failed, 2 usage. Whatever it
// decides is decided in package cluster/approver/verdict.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/node-cert-agent/node-cert-agent/agent/log"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// version is set by the linker.
var version = "0.0.0-dev"

// The bounds that the shipped policies set as well.
const (
	shortest = 10 * time.Minute
	longest  = 90 * 24 * time.Hour
)

const day = 24 * time.Hour

func main() {
	// A panic would end with 2, wrong usage, and systemd would not start it again.
	debug.SetTraceback("crash")
	// Nor may tokens be in a core dump: see disableCoreDumps of the agent.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// settings are the flags.
type settings struct {
	kubeconfig, namespace, nodes, listen string
	lifetime, stale, lease               time.Duration
	level                                log.Level
	machines, version                    bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "node-cert-controller: error: %v\n", err)
		return 2
	case s.version:
		fmt.Fprintln(stdout, "node-cert-controller", version)
		return 0
	}
	if err := work(ctx, s); err != nil {
		fmt.Fprintf(stderr, "node-cert-controller: error: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (s settings, err error) {
	f := flag.NewFlagSet("node-cert-controller", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "authenticate with `FILE`; default is the pod's ServiceAccount")
	f.StringVar(&s.namespace, "namespace", "node-cert-agent", "the `NAMESPACE` of the Lease")
	f.StringVar(&s.nodes, "nodes", "", "also accept the machines whose names are in `FILE`, one on a line; it is read "+
		"anew for each request")
	f.BoolVar(&s.machines, "machines", false, "also accept the nodes of OpenShift's Machines")
	f.StringVar(&s.listen, "listen", "", "answer /healthz, /readyz and /metrics on `ADDRESS:PORT` of the loopback "+
		"interface")
	f.DurationVar(&s.lifetime, "max-lifetime", longest, "the longest lifetime that a certificate may be asked for")
	f.DurationVar(&s.stale, "stale-after", 2*time.Hour,
		"how long after a node's last report its identity counts as in use")
	f.DurationVar(&s.lease, "lease", 15*time.Second, "how long a replica that fell silent counts as the leader")
	f.Var(&s.level, "log-level", "log from `LEVEL` on: debug, info, warn or error")
	f.BoolVar(&s.version, "version", false, "print the version")
	if err := f.Parse(args); err != nil {
		return settings{}, err
	}
	switch {
	case f.NArg() > 0:
		return settings{}, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case s.lifetime < shortest || s.lifetime > longest:
		return settings{}, fmt.Errorf("-max-lifetime %v is not between %v and %v", s.lifetime, shortest, longest)
	case s.stale < time.Minute || s.stale > 30*day:
		return settings{}, fmt.Errorf("-stale-after %v is not between a minute and 30 days", s.stale)
	case s.lease < time.Second || s.lease > time.Hour:
		return settings{}, fmt.Errorf("-lease %v is not between a second and an hour", s.lease)
	case s.lease >= s.stale: // an outage that the lease outlives is counted as silence of the nodes
		return settings{}, fmt.Errorf("-lease %v is not shorter than -stale-after %v", s.lease, s.stale)
	}
	if at, err := netip.ParseAddrPort(s.listen); s.listen != "" && (err != nil || !at.Addr().IsLoopback()) {
		return settings{}, fmt.Errorf("-listen %q is not a port of the loopback interface, such as 127.0.0.1:10457", s.listen)
	}
	return s, nil
}

func work(ctx context.Context, s settings) error {
	config, err := connection(s.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading how to reach the API server: %v", err)
	}
	config.UserAgent = "node-cert-controller/" + version
	config.QPS, config.Burst = 50, 100
	logging := zap.NewProductionConfig()
	logging.Level.SetLevel(zapcore.Level(s.level))
	log, err := logging.Build()
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	health := approver.NewHealth()
	if s.listen != "" {
		defer serve(s.listen, health, log)()
	}
	return approver.Run(ctx, config, approver.Options{
		Policy:    verdict.Policy{MaxLifetime: s.lifetime, StaleAfter: s.stale},
		Listed:    func(node string) (bool, error) { return listed(s.nodes, node) },
		Machines:  s.machines,
		Namespace: s.namespace,
		Replica:   fmt.Sprintf("%s_%d", host, os.Getpid()),
		Lease:     s.lease,
		Log:       log,
		Health:    health,
	})
}

// serve answers probes until the function that it returns is called. Without the port the work goes on:
// it may be another replica on the same host that has it.
func serve(listen string, health http.Handler, log *zap.Logger) (stop func()) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		log.Warn("probes and metrics are not answered", zap.Error(err))
		return func() {}
	}
	server := &http.Server{Handler: health, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 4 << 10}
	go func() { _ = server.Serve(l) }() // ends with Close, which says so
	return func() { _ = server.Close() }
}

func connection(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// listed looks a node up in a file of names; blank lines and what follows # do not count.
func listed(file, node string) (bool, error) {
	if file == "" {
		return false, nil
	}
	f, err := os.Open(file) //nolint:gosec // a flag names it
	if err != nil {
		return false, fmt.Errorf("reading the list of nodes: %v", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(name) == node {
			return true, nil
		}
	}
	return false, lines.Err()
}
