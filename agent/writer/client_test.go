// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func TestClientOutlivesTheWriter(t *testing.T) {
	local, _ := newLocal(t)
	socket := filepath.Join(t.TempDir(), "s")
	c := Dial(socket)
	defer c.Close()
	if _, err := c.Sweep(context.Background()); kind(err) != Unavailable {
		t.Errorf("with no writer: %v", err)
	}
	ln := listen(t, socket)
	for range 2 {
		s := start(t, ln, always(local), everyone)
		for range 2 {
			if _, err := c.Sweep(context.Background()); err != nil {
				t.Errorf("with a writer: %v", err)
			}
		}
		s.stop()
		<-s.done
		// What the server did to the listener ends with its process; here it is undone.
		if err := ln.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	ln.Close()
	if _, err := c.Sweep(context.Background()); kind(err) != Unavailable {
		t.Errorf("with the writer gone: %v", err)
	}
}

func TestClientWaitsNoLongerThanItsContext(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listen(t, socket) // connects, and never answers
	c := Dial(socket)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Sweep(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	waiting, give := context.WithCancel(context.Background())
	give()
	if _, err := c.Sweep(waiting); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestClientSendsNothingTooLarge(t *testing.T) {
	local, _ := newLocal(t)
	c := Dial(serve(t, local).socket)
	var large plan.Commit
	for range 9 {
		large.Writes = append(large.Writes, plan.CommitWrite{
			Key: key(plan.RootCAData, ""), Data: []byte(strings.Repeat("x", disk.MaxSize))})
	}
	if err := c.Commit(context.Background(), large); kind(err) != Refused {
		t.Errorf("got %v, want a refusal", err)
	}
	if _, err := c.Sweep(context.Background()); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

// scripted answers a request with each of these in turn, and then hangs up.
func scripted(t *testing.T, answers ...[]byte) *Client {
	t.Helper()
	ln := listen(t, filepath.Join(t.TempDir(), "s"))
	go func() {
		conn, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		for _, a := range answers {
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = conn.Write(a)
		}
	}()
	return Dial(ln.Addr().String())
}

func TestClientAsksForWhatIsMissing(t *testing.T) {
	c := scripted(t, frame(`{"files":[{"uid":1},{"uid":2}],"sizes":[0,3]}`, "two"),
		frame(`{"files":[{"uid":3}],"sizes":[0]}`))
	files, err := c.Observe(context.Background(), make([]plan.Query, 3))
	if err != nil || len(files) != 3 || files[0].UID != 1 || string(files[1].Data) != "two" || files[2].UID != 3 {
		t.Errorf("got %v, %v; want three in order", files, err)
	}
}

func TestClientDoubtsStrangeAnswers(t *testing.T) {
	for sentence, answer := range map[string][]byte{
		"no frame":          []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"an unknown field":  frame(`{"paths":[]}`),
		"too few answers":   frame(`{"files":[]}`),
		"too many answers":  frame(`{"files":[{},{}],"sizes":[0,0]}`),
		"half an answer":    frame(`{"files":[{}],"sizes":[0]}`)[:12],
		"missing sizes":     frame(`{"files":[{}]}`),
		"no answer, an end": nil,
	} {
		t.Run(sentence, func(t *testing.T) {
			files, err := scripted(t, answer).Observe(context.Background(), make([]plan.Query, 1))
			if kind(err) == "" {
				t.Errorf("got %v, %v; want an error", files, err)
			}
		})
	}
}
