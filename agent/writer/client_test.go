// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func TestClientOutlivesTheWriter(t *testing.T) {
	local, _ := newLocal(t)
	socket := filepath.Join(t.TempDir(), "s")
	c := Dial(socket)
	defer c.Close()
	if _, err := c.Sweep(context.Background()); kind(err) != unavailable {
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
	if _, err := c.Sweep(context.Background()); kind(err) != unavailable {
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

func TestWhatIsTooLargeForOneRequestIsSentInSeveral(t *testing.T) {
	local, dir := newLocal(t)
	c := Dial(serve(t, local).socket)
	var large plan.Commit
	for i := range 5 {
		large.Writes = append(large.Writes, plan.CommitWrite{Key: key(plan.ImageRegistryBundleData, fmt.Sprint("r", i)),
			Data: []byte("valid" + strings.Repeat("x", disk.MaxSize-5))})
	}
	for i := range batch {
		large.Writes = append(large.Writes, writes(plan.ImageRegistryBundleData, longest(i), "valid").Writes...)
	}
	large.Removals = []plan.CommitRemoval{
		{Key: key(plan.ImageRegistryBundleData, "gone"), Digest: plan.DigestOf([]byte("valid, gone"))}}
	if err := c.Commit(context.Background(), large); err != nil {
		t.Fatal(err)
	}
	var queries []plan.Query
	for _, w := range large.Writes {
		queries = append(queries, plan.Query{Key: w.Key, Known: plan.DigestOf(w.Data)})
	}
	files, err := c.Observe(context.Background(), queries)
	if err != nil || len(files) != len(queries) {
		t.Fatalf("%d answers to %d queries, %v", len(files), len(queries), err)
	}
	for i, f := range files {
		if f.Digest != queries[i].Known {
			t.Errorf("%s is %v", queries[i].Key, f.Kind)
		}
	}
	if _, there := readTree(t, dir)["etc/docker/certs.d/gone/ca.crt"]; there {
		t.Error("the removal was not done")
	}
}

// longest is the i-th registry name of the greatest length.
func longest(i int) string {
	label := strings.Repeat("x", 60)
	return fmt.Sprintf("%05d.%s.%s.%s.%s:65535", i, label, label, label, label)
}

func TestTheLargestRequestsOfAClientFitTheirFrames(t *testing.T) {
	var queries []plan.Query
	var commit plan.Commit
	for i := range batch {
		name := longest(i)
		if _, err := (plan.FileSpec{Path: "{name}"}).PathOf(name); err != nil || len(name) != 255 {
			t.Fatalf("%q: %v", name, err)
		}
		k := key(plan.ImageRegistryBundleUserData, name)
		queries = append(queries, plan.Query{Key: k, Known: plan.DigestOf(nil)})
		commit.Removals = append(commit.Removals, plan.CommitRemoval{Key: k, Digest: plan.DigestOf(nil)})
	}
	for name, q := range map[string]request{"observe": {Observe: queries}, "commit": {Commit: &commit}} {
		text, err := json.Marshal(q)
		if err != nil || len(text) > maxText {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
		if err := frame.Decode(text, new(request), requests); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// answering answers a request with each of these in turn, and then hangs up.
func answering(t *testing.T, answers ...[]byte) *Client {
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
	c := answering(t, framed(`{"files":[{"uid":1},{"uid":2}],"sizes":[0,3]}`, "two"),
		framed(`{"files":[{"uid":3}],"sizes":[0]}`))
	files, err := c.Observe(context.Background(), make([]plan.Query, 3))
	if err != nil || len(files) != 3 || files[0].UID != 1 || string(files[1].Data) != "two" || files[2].UID != 3 {
		t.Errorf("got %v, %v; want three in order", files, err)
	}
}

func TestClientDoubtsStrangeAnswers(t *testing.T) {
	for sentence, answer := range map[string][]byte{
		"no frame":          []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"an unknown field":  framed(`{"paths":[]}`),
		"too few answers":   framed(`{"files":[]}`),
		"too many answers":  framed(`{"files":[{},{}],"sizes":[0,0]}`),
		"half an answer":    framed(`{"files":[{}],"sizes":[0]}`)[:12],
		"missing sizes":     framed(`{"files":[{}]}`),
		"no answer, an end": nil,
	} {
		t.Run(sentence, func(t *testing.T) {
			files, err := answering(t, answer).Observe(context.Background(), make([]plan.Query, 1))
			if kind(err) == "" {
				t.Errorf("got %v, %v; want an error", files, err)
			}
		})
	}
}

func TestAFieldThatIsAnotherOnTheOtherSideIsLeftAlone(t *testing.T) {
	local, dir := newLocal(t)
	s := serve(t, local)
	ctx := context.Background()
	removal := plan.Commit{Removals: []plan.CommitRemoval{
		{Key: key(plan.ImageRegistryBundleData, "gone"), Digest: plan.DigestOf([]byte("valid, gone"))}}}
	for sentence, change := range map[string]func(*plan.FileSpec){
		"path":   func(r *plan.FileSpec) { r.Path = "/etc/containers/certs.d/{name}/ca.crt" },
		"mode":   func(r *plan.FileSpec) { r.Mode = 0o600 },
		"owner":  func(r *plan.FileSpec) { r.UID = 1 },
		"group":  func(r *plan.FileSpec) { r.GID = 1 },
		"link":   func(r *plan.FileSpec) { r.FollowLink = true },
		"strict": func(r *plan.FileSpec) { r.Strict = true },
		"others": func(r *plan.FileSpec) { r.Beside = []plan.Writer{plan.NodeCA} },
	} {
		mine := specs()
		change(&mine[3])
		c := Dial(s.socket).For(mine)
		if err := c.Commit(ctx, removal); kind(err) != failed || !strings.Contains(err.Error(), "different times") {
			t.Errorf("another %s: the removal is answered %v", sentence, err)
		}
		if _, err := c.Observe(ctx, []plan.Query{{Key: removal.Removals[0].Key}}); kind(err) != failed {
			t.Errorf("another %s: the look is answered %v", sentence, err)
		}
		if _, err := c.Observe(ctx, []plan.Query{{Key: key(plan.KubeAPIServerServingCAData, "")}}); err != nil {
			t.Errorf("another %s: a look at the field before is answered %v", sentence, err)
		}
		_ = c.Close()
	}
	if got := readTree(t, dir)["etc/docker/certs.d/gone/ca.crt"]; got != "valid, gone" {
		t.Errorf("the file holds %q", got)
	}
	if err := Dial(s.socket).For(specs()).Commit(ctx, removal); err != nil {
		t.Errorf("the same fields: %v", err)
	}
}
