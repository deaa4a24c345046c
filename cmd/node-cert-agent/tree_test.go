// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// testTimeout bounds every wait. It is no measure of speed.
const testTimeout = 30 * time.Second

const (
	kubeletCA = "/etc/kubernetes/kubelet-ca.crt"
	fragment  = "/etc/node-cert-agent/config.d/50-site.yaml"
)

// tree is a root of its own for the agent in plain mode, and an API server.
type tree struct {
	*testing.T
	api        *api
	root       string
	kubeconfig string
}

// newTree has the directories that a package brings, and a kubeconfig.
func newTree(t *testing.T) *tree {
	t.Helper()
	r := &tree{T: t, api: newAPI(t), root: t.TempDir()}
	r.kubeconfig = r.path("/etc/node-cert-agent/kubeconfig")
	for _, dir := range []string{"/etc/kubernetes", "/etc/docker/certs.d", "/etc/node-cert-agent/config.d"} {
		if err := os.MkdirAll(r.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	save(t, r.kubeconfig, r.api.kubeconfig())
	r.configure("")
	return r
}

func (r *tree) path(file string) string { return filepath.Join(r.root, file) }

// configure writes the one fragment: no pauses between tries, and what the test adds.
func (r *tree) configure(more string) {
	r.Helper()
	save(r.T, r.path(fragment), "apiVersion: config.node-cert-agent.io/v1alpha1\nwatch: {retryJitter: 1ms, retryMax: "+
		"100ms}\ntrust: {holdRemovals: 0s, source: \"\"}\n"+more)
}

// outcome is what a command came to.
type outcome struct {
	code           int
	stdout, stderr string
}

// command runs a command to its end.
func command(t *testing.T, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, &stdout, &stderr)
	o := outcome{code, stdout.String(), stderr.String()}
	if all := o.stdout + o.stderr; strings.Contains(all, marker) {
		t.Errorf("%q prints the token:\n%s", args, all)
	}
	return o
}

func (r *tree) command(args ...string) outcome {
	r.Helper()
	return command(r.T, append(args, "--root", r.root)...)
}

// running is the agent at work.
type running struct {
	*tree
	log   *console
	stop  context.CancelFunc
	ended chan int
}

// start runs the agent until the test ends, when it must leave with 0 and without a secret in
// anything it printed or wrote.
func (r *tree) start() *running {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	a := &running{tree: r, log: &console{}, stop: cancel, ended: make(chan int, 1)}
	go func() {
		a.ended <- run(ctx, []string{"run", "--root", r.root, "--kubeconfig", r.kubeconfig}, a.log, a.log)
	}()
	r.Cleanup(func() {
		cancel()
		select {
		case code := <-a.ended:
			if code != 0 {
				r.Errorf("run ended with %d", code)
			}
		case <-time.After(testTimeout):
			r.Error("run does not end")
		}
		r.wantNoSecret(a.log.String())
		if r.Failed() {
			r.Logf("the agent said\n%s", a.log)
		}
	})
	return a
}

func (r *tree) wantNoSecret(log string) {
	r.Helper()
	if strings.Contains(log, marker) {
		r.Error("the log holds the token")
	}
	err := filepath.WalkDir(r.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || p == r.kubeconfig {
			return err
		}
		b, err := os.ReadFile(p)
		if bytes.Contains(b, []byte(marker)) {
			r.Errorf("%s holds the token", p)
		}
		return err
	})
	if err != nil {
		r.Error(err)
	}
}

// await polls, because files and output have no events of their own here.
func (r *tree) await(what string, done func() bool) {
	r.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(testTimeout)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			r.Fatalf("%s did not come about; status is %+v", what, r.status())
		}
	}
}

func (r *tree) file(p string) string {
	b, _ := os.ReadFile(r.path(p)) // a missing file holds nothing
	return string(b)
}

func (r *tree) awaitFile(p string, want []byte) {
	r.Helper()
	r.await(p, func() bool { return r.file(p) == string(want) })
}

func (r *tree) status() (s report.Status) {
	_ = json.Unmarshal([]byte(r.file("/run/node-cert-agent/status.json")), &s)
	return s
}

func (r *tree) awaitStatus(what string, done func(report.Status) bool) {
	r.Helper()
	r.await(what, func() bool { return done(r.status()) })
}

// awaitVersion waits until the agent has dealt with a version of the ControllerConfig.
func (r *tree) awaitVersion(v string) {
	r.Helper()
	r.awaitStatus("version "+v, func(s report.Status) bool {
		return s.State == "following" && s.ControllerConfig.ResourceVersion == v && !s.Synced.IsZero()
	})
}

// snapshot lists everything in the tree with its content.
func (r *tree) snapshot() string {
	r.Helper()
	var b strings.Builder
	err := filepath.WalkDir(r.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		b.WriteString(p + "\n")
		if d.Type().IsRegular() {
			text, err := os.ReadFile(p)
			b.Write(text)
			return err
		}
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return b.String()
}

// console takes what several goroutines write.
type console struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.Write(b)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.String()
}

// ca is a CA certificate that expires on a known day.
func ca(name string) []byte {
	return testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: name},
		NotAfter: time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)}, testpki.ECDSA).PEM()
}
