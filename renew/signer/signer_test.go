// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
)

// lockedBuffer is the log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// serve is a signer of an empty host, its socket and its log.
func serve(t *testing.T, allowed func(uint32) bool) (socket string, log *lockedBuffer) {
	socket, log = filepath.Join(t.TempDir(), "s"), &lockedBuffer{}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		host := inspect.Host{Root: t.TempDir(), Proc: "/proc", UID: uint32(os.Getuid())}
		if err := Serve(ctx, ln, Signer{Host: host, Load: func() (Policy, error) { return Policy{}, nil }}, allowed, log); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait(); _ = ln.Close() })
	return socket, log
}

func TestAHostIsInspectedOverTheSocket(t *testing.T) {
	socket, _ := serve(t, func(uint32) bool { return true })
	c := Dial(socket)
	defer func() { _ = c.Close() }()
	seen, err := c.Inspect(t.Context())
	if err != nil || len(seen.Pairs) != 0 {
		t.Errorf("%+v, %v", seen, err)
	}
}

func TestOthersAreRefusedAndNoted(t *testing.T) {
	socket, log := serve(t, func(uint32) bool { return false })
	c := Dial(socket)
	defer func() { _ = c.Close() }()
	_, err := c.Inspect(t.Context())
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("error %v", err)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if !strings.Contains(log.b.String(), "signer") {
		t.Errorf("error %v, log %q", e, log.b.String())
	}
}

func TestWhatIsNoQuestionIsRefused(t *testing.T) {
	socket, _ := serve(t, func(uint32) bool { return true })
	for name, question := range map[string]any{"nothing": request{}, "a path": map[string]any{"inspect": true, "path": "/etc"},
		"no object": 7} {
		var r reply
		conn := frame.Dial(socket, requests, replies)
		err := conn.Ask(t.Context(), question, nil, func(text, _ []byte) error { return frame.Decode(text, &r, replies) })
		_ = conn.Close()
		if err != nil || r.Error == nil || r.Error.Reason != Refused || r.Inspection != nil {
			t.Errorf("%s: %+v, %v", name, r.Error, err)
		}
	}
}

func TestASignerThatIsNotThereIsUnavailable(t *testing.T) {
	c := Dial(filepath.Join(t.TempDir(), "none"))
	_, err := c.Inspect(t.Context())
	if e, ok := errors.AsType[*Error](err); !ok || e.Reason != Unavailable {
		t.Errorf("error %v", err)
	}
}
