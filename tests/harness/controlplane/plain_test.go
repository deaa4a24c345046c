// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

func TestABuildIsNamedByItsSourcesAndItsGo(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := func(goVersion string) string {
		t.Helper()
		k, err := buildKey(dir, goVersion)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	write("go.mod", "module m")
	write("go.sum", "")
	write("main.go", "package main")
	first := key("go1.26.0")
	write("notes.txt", "not a source")
	if key("go1.26.0") != first {
		t.Error("the same sources have two names")
	}
	if key("go1.26.1") == first {
		t.Error("another Go, the same name")
	}
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		before := key("go1.26.0")
		write(name, "changed")
		if key("go1.26.0") == before {
			t.Errorf("another %s, the same name", name)
		}
	}
}

func TestABuildTellsOfErrorsAndOfEveryHundredthPackage(t *testing.T) {
	var told strings.Builder
	l := &buildLog{to: &told}
	for _, part := range []string{strings.Repeat("k8s.io/api\n", 99), "k8s.io", "/client-go\n",
		"# k8s.io/kubectl\nmain.go:3:1: no such thing\n"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if want := "  100 packages\n# k8s.io/kubectl\nmain.go:3:1: no such thing\n"; told.String() != want {
		t.Errorf("told %q, want %q", told.String(), want)
	}
}

func TestOneOfTwoBuildersWaits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), file, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var told strings.Builder
	if _, err := lock(ctx, file, &told); err == nil {
		t.Fatal("two hold the lock")
	}
	if !strings.Contains(told.String(), "waiting for another build") {
		t.Errorf("told %q", told.String())
	}
	unlock()
	again, err := lock(t.Context(), file, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestPortsDifferAndAreNoneThatTheKernelGivesAway(t *testing.T) {
	p, err := choosePorts()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range []int{p.api, p.etcdClient, p.etcdPeer, p.controllers} {
		if port < 1024 || port >= 32768 || seen[port] {
			t.Errorf("port %d in %+v", port, p)
		}
		seen[port] = true
	}
}

func TestAStateFolderThatIsNotEmptyIsRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := stateDir(dir); err != nil {
		t.Errorf("empty: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := stateDir(dir); err == nil {
		t.Error("not empty: accepted")
	}
}

// fake launches a shell script under a server's name.
func fake(t *testing.T, script string) *server {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, etcd), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := launch(Binaries{Dir: dir}, etcd, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(context.Background(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestAServerThatEndsIsReportedWithTheEndOfItsLog(t *testing.T) {
	const nowhere = "https://127.0.0.1:1"
	err := fake(t, "echo no such thing >&2; exit 3").ready(t.Context(), http.DefaultClient, nowhere)
	if err == nil || !strings.Contains(err.Error(), "no such thing") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("ended: %v", err)
	}
	err = fake(t, "echo listen tcp 127.0.0.1:1: bind: address already in use; exit 1").ready(t.Context(),
		http.DefaultClient, nowhere)
	if !errors.Is(err, errPortTaken) {
		t.Errorf("port taken: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	s := fake(t, "exec cat /dev/zero > /dev/null")
	if err := s.ready(ctx, http.DefaultClient, nowhere); err == nil || !s.running() {
		t.Errorf("silent: %v, running: %t", err, s.running())
	}
}

func TestAPlaneReportsAServerThatEndedByItself(t *testing.T) {
	p := &Plane{options: Options{Keep: true}, ca: testpki.New("ca", testpki.ECDSA),
		etcd: fake(t, "echo the disk is full; exit 1")}
	<-p.etcd.done
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("the first Stop says %v", err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("the second Stop says %v", err)
	}
}
