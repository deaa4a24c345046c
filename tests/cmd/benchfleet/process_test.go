// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/identity"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// TestMain makes this program one of agents, as main does.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asAgents {
		fail(agents(context.Background(), os.Stdin, os.Stdout))
		return
	}
	os.Exit(m.Run())
}

func TestProcessesAreLaunchedObeyAndEnd(t *testing.T) {
	failed := make(chan error, 2)
	e := &env{fail: func(err error) { failed <- err }}
	dir := t.TempDir()
	for first := range 2 {
		if err := e.launch(share{First: first, Count: 1, Dir: dir}); err != nil {
			t.Fatal(err)
		}
	}
	if sum, err := e.heaps(t.Context()); err != nil || sum <= 0 {
		t.Errorf("they have %d: %v", sum, err)
	}
	if resident, _ := memory(e.processes[1].pid); resident <= 0 {
		t.Error("the second has no memory")
	}
	for _, order := range []string{orderBoot, orderHeap} {
		if err := e.order(order); err != nil {
			t.Fatal(err)
		}
	}
	if sum, err := e.heaps(t.Context()); err != nil || sum <= 0 {
		t.Errorf("with agents they have %d: %v", sum, err)
	}
	if took, err := e.used(); err != nil || took <= 0 {
		t.Errorf("they had processors for %v: %v", took, err)
	}
	e.endAgents()
	for range e.processes {
		if err := <-failed; err == nil {
			t.Error("that one has ended is no failure")
		}
	}
	for i := range e.processes {
		if _, err := os.Stat(dir + "/" + nodeName(i) + fragment); err != nil {
			t.Error(err)
		}
	}
}

// obey runs a process of agents here, without an API server, and returns what gives it orders, what it says, and how
// it ends.
func obey(t *testing.T, s share) (orders *json.Encoder, end io.Closer, events *json.Decoder, ended <-chan error) {
	in, give := io.Pipe()
	said, out := io.Pipe()
	result := make(chan error, 1)
	go func() {
		err := agents(t.Context(), in, out)
		_ = out.Close()
		result <- err
	}()
	t.Cleanup(func() { _, _ = give.Close(), said.Close() })
	orders = json.NewEncoder(give)
	if err := orders.Encode(s); err != nil {
		t.Fatal(err)
	}
	return orders, give, json.NewDecoder(said), result
}

func TestAProcessOfAgentsObeysUntilItsOrdersEnd(t *testing.T) {
	s := share{First: 3, Count: 2, Dir: t.TempDir(), Kubeconfig: kubeconfigs.Token("https://127.0.0.1:1",
		testpki.NewCA("ca"), "token")}
	orders, end, events, ended := obey(t, s)
	for _, next := range [][]string{{orderBoot, orderHeap}, {orderHeap}, nil} {
		var e event
		if err := events.Decode(&e); err != nil || e.Heap <= 0 {
			t.Fatalf("before %s it said %+v: %v", next, e, err)
		}
		for _, order := range next {
			if err := orders.Encode(order); err != nil {
				t.Fatal(err)
			}
		}
	}
	trees, err := filepath.Glob(s.Dir + "/*" + fragment)
	if err != nil || len(trees) != 2 || !strings.HasPrefix(trees[0], s.Dir+"/node-0003/") {
		t.Errorf("it made %q: %v", trees, err)
	}
	_ = end.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAProcessOfAgentsRefusesWhatIsNoOrder(t *testing.T) {
	for _, order := range []any{"halt", 5} {
		orders, _, events, ended := obey(t, share{Dir: t.TempDir()})
		if err := events.Decode(new(event)); err != nil {
			t.Fatal(err)
		}
		if err := orders.Encode(order); err != nil {
			t.Fatal(err)
		}
		if <-ended == nil {
			t.Errorf("it took the order %v", order)
		}
	}
	if agents(t.Context(), strings.NewReader(""), io.Discard) == nil {
		t.Error("it has a share without being told")
	}
}

func TestOnlyTheBundleThatIsExpectedCounts(t *testing.T) {
	e := &env{}
	e.files.round(3)
	e.expect([]byte("new"))
	var said bytes.Buffer
	var at time.Duration // that the first was told of
	say := func(v event) {
		at = cmp.Or(at, v.At)
		if err := json.NewEncoder(&said).Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(field plan.Field, data string) plan.Commit {
		return plan.Commit{Writes: []plan.CommitWrite{{Key: plan.Key{Field: field}, Data: []byte(data)}}}
	}
	wrote(0, commit(plan.KubeAPIServerServingCAData, "new"), say)
	wrote(1, commit(plan.KubeAPIServerServingCAData, "old"), say)
	wrote(2, commit(plan.ImageRegistryBundleData, "new"), say)
	say(event{Warning: "this is of a test"})
	say(event{Heap: 7})
	heap := make(chan int64, 1)
	if err := e.hear(&said, heap); err == nil || <-heap != 7 {
		t.Errorf("that it has ended is no failure: %v", err)
	}
	if done := e.files.at; !done[0].Equal(booted.Add(at)) || !done[1].IsZero() || !done[2].IsZero() {
		t.Errorf("they are done at %v, and the first says %v after %v", done, at, booted)
	}
}

func TestAFailureOfAProcessIsPassedOn(t *testing.T) {
	for said, want := range map[string]string{`{"Failure":"no disk"}`: "no disk", `{"Node":`: "no event", "": "has ended"} {
		if err := new(env).hear(strings.NewReader(said), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", said, err)
		}
	}
	e := &env{processes: []*process{{heap: make(chan int64, 1)}, {heap: make(chan int64, 1)}}}
	e.processes[0].heap <- 2
	e.processes[1].heap <- 3
	if sum, err := e.heaps(t.Context()); sum != 5 || err != nil {
		t.Errorf("together they have %d: %v", sum, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.heaps(ctx); err == nil {
		t.Error("who says nothing has no memory")
	}
}

func TestTheProcessorsOfAProcessAreRead(t *testing.T) {
	e := &env{processes: []*process{{pid: os.Getpid()}}}
	own := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
			panic(err)
		}
		return time.Duration(t.Nano())
	}
	before := own()
	took, err := e.used()
	if after := own(); err != nil || took < before || took > after {
		t.Errorf("we had a processor for %v, between %v and %v: %v", took, before, after, err)
	}
}

func TestAnIdentityOfOursIsOneOfAnAgent(t *testing.T) {
	root := t.TempDir()
	if err := giveIdentity(testpki.New("ca", testpki.ECDSA), "https://127.0.0.1:1", "node-0007", root); err != nil {
		t.Fatal(err)
	}
	tree, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := tree.Directory(stateDir)
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.Load(dir, "node-0007")
	if err != nil {
		t.Fatal(err)
	}
	id.Close()
}
