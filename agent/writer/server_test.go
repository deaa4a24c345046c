// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// lines is a log that tests read while the server writes.
type lines struct {
	mu     sync.Mutex
	text   bytes.Buffer
	before func() // called before something is written, if set
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.before != nil {
		l.before()
	}
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// What the frames of these tests say, and how many connections a server takes.
const (
	version        = 1
	maxConnections = 4
)

// serving is a running server.
type serving struct {
	socket string
	log    *lines
	stop   context.CancelFunc
	done   chan error // what Serve returned
}

func listen(t testing.TB, socket string) *net.UnixListener {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

func everyone(uint32) bool { return true }

func start(t testing.TB, ln *net.UnixListener, load func() (*Local, error), allowed func(uint32) bool) *serving {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &serving{ln.Addr().String(), new(lines), cancel, make(chan error, 1)}
	go func() { s.done <- Serve(ctx, ln, load, allowed, s.log) }()
	t.Cleanup(cancel)
	return s
}

func serve(t testing.TB, local *Local) *serving {
	t.Helper()
	return start(t, listen(t, filepath.Join(t.TempDir(), "s")), always(local), everyone)
}

func always(local *Local) func() (*Local, error) {
	return func() (*Local, error) { return local, nil }
}

// sendRaw sends bytes on a connection of their own and returns all that comes back.
func sendRaw(t testing.TB, socket string, b []byte) []byte {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A server that has heard enough closes early: then the rest cannot be sent.
	_, _ = conn.Write(b)
	_ = conn.CloseWrite()
	answer, _ := io.ReadAll(conn)
	return answer
}

// framed is a frame with that JSON, and perhaps contents.
func framed(text string, contents ...string) []byte {
	content := strings.Join(contents, "")
	b := binary.BigEndian.AppendUint32([]byte{version}, uint32(len(text)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(append(b, text...), content...)
}

func TestBothSidesAnswerAlike(t *testing.T) {
	ctx := context.Background()
	queries := []plan.Query{{Key: key(plan.KubeAPIServerServingCAData, "")}, {Key: key(plan.RootCAData, "")},
		{Key: key(plan.ImageRegistryBundleData, "new:5000")}, {Key: key(plan.ImageRegistryBundleData, "gone")}}
	commit := writes(plan.KubeAPIServerServingCAData, "", "valid, new")
	commit.Writes = append(commit.Writes, writes(plan.ImageRegistryBundleData, "new:5000", "valid, new").Writes...)
	commit.Removals = []plan.CommitRemoval{{Key: key(plan.ImageRegistryBundleData, "gone"),
		Digest: plan.DigestOf([]byte("valid, gone"))}}
	want := maps.Clone(host)
	want["etc/kubernetes/ca.crt"], want["etc/docker/certs.d/new:5000/ca.crt"] = "valid, new", "valid, new"
	delete(want, "etc/docker/certs.d/gone/ca.crt")

	type half interface {
		Observe(context.Context, []plan.Query) ([]plan.File, error)
		Commit(context.Context, plan.Commit) error
		Sweep(context.Context) ([]string, error)
	}
	for side, connect := range map[string]func(*Local) half{
		"in process":      func(l *Local) half { return l },
		"over the socket": func(l *Local) half { return Dial(serve(t, l).socket) },
	} {
		t.Run(side, func(t *testing.T) {
			local, dir := newLocal(t)
			leftover := "etc/kubernetes/.ca.crt123"
			if err := os.WriteFile(filepath.Join(dir, leftover), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			w := connect(local)
			before, err := w.Observe(ctx, queries)
			if err != nil {
				t.Fatal(err)
			}
			if string(before[0].Data) != "valid, old" || before[1].Kind != plan.Irregular ||
				before[2].Kind != plan.Absent || string(before[3].Data) != "valid, gone" {
				t.Errorf("observed %+v", before)
			}
			if removed, err := w.Sweep(ctx); err != nil || len(removed) != 1 || removed[0] != "/"+leftover {
				t.Errorf("swept %q, %v", removed, err)
			}
			if err := w.Commit(ctx, commit); err != nil {
				t.Error(err)
			}
			if got := readTree(t, dir); !maps.Equal(got, want) {
				t.Errorf("now there is %v, want %v", got, want)
			}
			if err := w.Commit(ctx, writes("none", "", "valid")); kind(err) != refused || !untouched(err) {
				t.Errorf("an unknown field: %v", err)
			}
			if err := w.Commit(ctx, writes(plan.RootCAData, "", "valid")); kind(err) != failed || !untouched(err) {
				t.Errorf("a file that cannot be staged: %v", err)
			}
			theirs := plan.Commit{Removals: []plan.CommitRemoval{{Key: key(plan.ImageRegistryBundleData, "new:5000"),
				Digest: plan.Digest{7}}}}
			if err := w.Commit(ctx, theirs); kind(err) != failed || untouched(err) {
				t.Errorf("a removal that stopped: %v", err)
			}
		})
	}
}

func TestServerRefusesRecordsAndLivesOn(t *testing.T) {
	local, dir := newLocal(t)
	s := serve(t, local)
	write := `{"commit":{"writes":[{"field":"kubeAPIServerServingCAData"}]},`
	query := `{"field":"kubeAPIServerServingCAData"}`
	for sentence, b := range map[string][]byte{
		"no JSON":                    framed(`hello`),
		"an unknown field":           framed(`{"sweep":true,"exec":"sh"}`),
		"an unknown field within":    framed(`{"observe":[{"field":"rootCAData","path":"/etc/shadow"}]}`),
		"two values":                 framed(`{"sweep":true}{"sweep":true}`),
		"nothing asked":              framed(`{}`),
		"two things asked":           framed(`{"sweep":true,"observe":[` + query + `]}`),
		"a wrong type":               framed(`{"observe":{}}`),
		"a field that there is not":  framed(`{"observe":[{"field":"etcd"}]}`),
		"a path in place of a field": framed(`{"observe":[{"field":"/etc/shadow"}]}`),
		"a path in place of a name":  framed(`{"observe":[{"field":"imageRegistryBundleData","name":"../../etc"}]}`),
		"a digest that is none":      framed(`{"observe":[{"field":"rootCAData","known":"abc"}]}`),
		"an empty frame":             framed(""),
		"contents and no JSON":       framed("", "valid"),
		"JSON that is too large":     {version, 0, 4, 0, 1, 0, 0, 0, 0},
		"contents too large":         {version, 0, 0, 0, 2, 0, 128, 0, 1},
		"too many queries":           framed(`{"observe":[` + strings.Repeat(`{},`, 4096) + `{}]}`),
		"a sum that overflows":       {version, 255, 255, 255, 255, 0, 0, 0, 16, '{'},
		"another version":            append([]byte{9}, framed("{}")[1:]...),
		"HTTP":                       []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"half a head":                {version, 0},
		"half a frame":               framed(`{"sweep":true}`)[:12],
		"a good one, then a bad one": append(framed(`{"sweep":true}`), framed(`{"sweep":1}`)...),
		"content that is not valid":  framed(write+`"sizes":[5]}`, "hello"),
		"content without its size":   framed(write+`"sizes":[]}`, "valid"),
		"content that is too short":  framed(write+`"sizes":[6]}`, "valid"),
		"content that is too long":   framed(write+`"sizes":[5]}`, "valid!"),
		"content of negative size":   framed(write+`"sizes":[-1]}`, "valid"),
		"content in the JSON":        framed(strings.Replace(write, `"}`, `","data":"dmFsaWQ="}`, 1) + `"sizes":[0]}`),
		"content of nothing":         framed(`{"sweep":true}`, "valid"),
		"sizes of nothing":           framed(`{"sweep":true,"sizes":[1]}`, "v"),
		"deep nesting":               framed(strings.Repeat("[", 1<<16)),
	} {
		t.Run(sentence, func(t *testing.T) {
			before := strings.Count(s.log.String(), "<4>writer refused a request: uid="+fmt.Sprint(os.Geteuid())+" pid=")
			answer := sendRaw(t, s.socket, b)
			if !bytes.Contains(answer, []byte(`"kind":"refused"`)) {
				t.Errorf("answered %q, want a refusal", answer)
			}
			if after := strings.Count(s.log.String(), "<4>writer refused a request: uid="); after != before+1 {
				t.Errorf("%d lines recorded, want one:\n%s", after-before, s.log)
			}
			if got := readTree(t, dir); !maps.Equal(got, host) {
				t.Errorf("now there is %v", got)
			}
		})
	}
	if answer := sendRaw(t, s.socket, framed(`{"observe":[`+query+`]}`)); !bytes.Contains(answer, []byte(`"regular"`)) {
		t.Errorf("after all that a good request is answered %q", answer)
	}
}

func TestPeersOfAnotherUserAreNotHeard(t *testing.T) {
	local, dir := newLocal(t)
	var asked []uint32
	ln := listen(t, filepath.Join(t.TempDir(), "s"))
	s := start(t, ln, always(local), func(uid uint32) bool {
		asked = append(asked, uid)
		return len(asked) > 1
	})
	if answer := sendRaw(t, s.socket, framed(`{"sweep":true}`)); len(answer) != 0 {
		t.Errorf("answered %q", answer)
	}
	// The second peer is served, so that what was recorded of the first is there to be read.
	if err := Dial(s.socket).Commit(context.Background(), writes("none", "", "")); kind(err) != refused {
		t.Errorf("the next peer: %v", err)
	}
	s.stop()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	if asked[0] != uint32(os.Geteuid()) {
		t.Errorf("asked about %d", asked)
	}
	if want := fmt.Sprintf("<4>writer refused a peer: uid=%d pid=%d ", os.Geteuid(),
		os.Getpid()); !strings.HasPrefix(s.log.String(), want) {
		t.Errorf("recorded %q, want %q", s.log, want)
	}
	if got := readTree(t, dir); !maps.Equal(got, host) {
		t.Errorf("now there is %v", got)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	local, _ := newLocal(t)
	s := serve(t, local)
	var clients []*Client
	for range maxConnections {
		c := Dial(s.socket)
		if _, err := c.Sweep(context.Background()); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	if _, err := Dial(s.socket).Sweep(context.Background()); kind(err) != unavailable {
		t.Errorf("one more is answered %v", err)
	}
	if !strings.Contains(s.log.String(), "refused a connection") {
		t.Errorf("recorded %q", s.log)
	}
	for _, c := range clients {
		if _, err := c.Sweep(context.Background()); err != nil {
			t.Errorf("an older connection: %v", err)
		}
	}
}

func TestLargeObservationComesInParts(t *testing.T) {
	local, _ := newLocal(t)
	queries := []plan.Query{{Key: key(plan.RootCAData, "")}, {Key: key(plan.KubeAPIServerServingCAData, "")},
		{Key: key(plan.ImageRegistryBundleData, "gone")}}
	for enough, want := range map[int]int{1: 1, overhead + 1: 2, 2*overhead + 1: 2, 2*overhead + 20: 3, 1 << 30: 3} {
		files, err := local.observe(context.Background(), queries, enough)
		if err != nil || len(files) != want {
			t.Errorf("with %d bytes as enough there are %d answers, %v; want %d", enough, len(files), err, want)
		}
	}
}

func TestServerFollowsItsConfiguration(t *testing.T) {
	local, _ := newLocal(t)
	type configuration struct {
		local *Local
		err   error
	}
	var now atomic.Pointer[configuration]
	now.Store(&configuration{local, nil})
	load := func() (*Local, error) { c := now.Load(); return c.local, c.err }
	ln := listen(t, filepath.Join(t.TempDir(), "s"))
	s := start(t, ln, load, everyone)
	c := Dial(s.socket)
	ask := func() error {
		_, err := c.Observe(context.Background(), []plan.Query{{Key: key(plan.RootCAData, "")}})
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	now.Store(&configuration{nil, errors.New("a.yaml:3: unknown key")})
	if err := errors.Join(ask(), ask()); err != nil {
		t.Errorf("an invalid configuration took the last valid one away: %v", err)
	}
	if got, want := s.log.String(),
		"<4>writer keeps its last valid settings: reason=\"a.yaml:3: unknown key\"\n"; got != want {
		t.Errorf("recorded %q, want %q once", got, want)
	}
	now.Store(&configuration{New(specs()[:1], local.tree, valid), nil})
	if err := ask(); kind(err) != refused {
		t.Errorf("a field that was taken out is answered %v", err)
	}
	if err := Serve(context.Background(), ln, func() (*Local, error) { return nil, io.ErrNoProgress }, everyone,
		s.log); err == nil {
		t.Error("served without any valid configuration")
	}
}

func TestRequestUnderWayIsFinished(t *testing.T) {
	local, dir := newLocal(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	local.validate = func(plan.FileSpec, []byte) ([]pki.Cert, error) {
		close(begun)
		<-goOn
		return nil, nil
	}
	s := serve(t, local)
	result := make(chan error)
	go func() {
		result <- Dial(s.socket).Commit(context.Background(), writes(plan.KubeAPIServerServingCAData, "", "valid, new"))
	}()
	<-begun
	s.stop()
	close(goOn)
	if err := <-result; err != nil {
		t.Errorf("the commit was answered %v", err)
	}
	if err := <-s.done; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if got := readTree(t, dir)["etc/kubernetes/ca.crt"]; got != "valid, new" {
		t.Errorf("the file holds %q", got)
	}
}

func FuzzServer(f *testing.F) {
	f.Add(framed(`{"sweep":true}`))
	f.Add(framed(`{"observe":[{"field":"imageRegistryBundleData","name":"gone","known":""}]}`))
	f.Add(framed(`{"commit":{"writes":[{"field":"kubeAPIServerServingCAData"}]},"sizes":[5]}`, "valid"))
	f.Add(framed(`{"commit":{"writes":[{"field":"imageRegistryBundleData","name":"../x"}]},"sizes":[5]}`, "valid"))
	f.Add(framed(`{"commit":{"removals":[{"field":"imageRegistryBundleData","name":"gone","digest":"00"}]}}`))
	f.Add(append(framed(`{"sweep":true}`), framed(`{"sweep":false}`)...))
	f.Add([]byte{version, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Add([]byte{version, 0, 0, 0, 2})
	local, dir := newLocal(f)
	s := serve(f, local)
	f.Fuzz(func(t *testing.T, b []byte) {
		sendRaw(t, s.socket, b)
		confined(t, readTree(t, dir))
		select {
		case err := <-s.done:
			t.Fatalf("the server ended: %v", err)
		default:
		}
	})
}

func TestAWriterSweepsWhatTheOneBeforeItLeft(t *testing.T) {
	local, dir := newLocal(t)
	leftover := filepath.Join(dir, "etc/kubernetes/.ca.crt123")
	if err := os.WriteFile(leftover, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	said := make(chan struct{}, 1)
	log := &lines{before: func() { said <- struct{}{} }}
	ctx, cancel := context.WithCancel(context.Background())
	ln := listen(t, filepath.Join(t.TempDir(), "s"))
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, always(local), everyone, log) }()
	// Nobody asks for it, nor for anything else.
	select {
	case <-said:
	case err := <-done:
		t.Fatalf("ended with %v", err)
	case <-time.After(time.Minute):
		t.Fatal("nothing was swept")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := readTree(t, dir); !maps.Equal(got, host) {
		t.Errorf("now there is %v", got)
	}
	if want := fmt.Sprintf("<5>writer swept: path=\"/etc/kubernetes/.ca.crt123\" uid=%d pid=%d\n", os.Geteuid(),
		os.Getpid()); log.String() != want {
		t.Errorf("recorded %q, want %q", log, want)
	}
}
