// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestTheBusiestSecond(t *testing.T) {
	now := time.Now()
	at := func(all ...float64) (times []time.Time) {
		for _, s := range all {
			times = append(times, now.Add(time.Duration(s*float64(time.Second))))
		}
		return times
	}
	for _, c := range []struct {
		at   []time.Time
		want int
	}{{nil, 0}, {at(0), 1}, {at(0, 1, 2), 1}, {at(5, 0, 5.9, 5.2, 6, 0.5), 3}} {
		if got := busiest(c.at); got != c.want {
			t.Errorf("of %v, %d lie within a second, want %d", c.at, got, c.want)
		}
	}
}

func TestOfARoundTheFirstOfEachCounts(t *testing.T) {
	var b board
	b.mark(0, time.Now()) // before any round
	b.round(2)
	first := time.Now()
	b.mark(1, first)
	b.mark(1, first.Add(time.Second))
	b.mark(2, first) // of a larger fleet
	if b.at[1] != first || b.missing() != 1 {
		t.Errorf("%d are left, and the second mark is at %v", b.missing(), b.at[1])
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.wait(ctx, "a test", time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("it waits no more, because of %v", err)
	}
	b.mark(0, first)
	if at, err := b.wait(t.Context(), "a test", time.Hour); err != nil || len(at) != 2 {
		t.Errorf("all did it: %v, %v", at, err)
	}
}

func TestLinesAreWholeHoweverTheyArrive(t *testing.T) {
	const text = "one\n\ntwo is longer\nthe last has no end"
	want := []string{"one", "", "two is longer"}
	for name, from := range map[string]func() []string{
		"at once":      func() []string { return all(strings.NewReader(text)) },
		"byte by byte": func() []string { return all(iotest.OneByteReader(strings.NewReader(text))) },
	} {
		if got := from(); !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func all(from interface{ Read([]byte) (int, error) }) (got []string) {
	lines(from, func(line []byte) { got = append(got, string(line)) })
	return got
}

func TestAnEventOfAStateNamesItsNode(t *testing.T) {
	const event = `{"type":"MODIFIED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` +
		`"metadata":{"name":"node-0042","uid":"u","managedFields":[{"manager":"node-cert-agent","operation":"Apply"}]}}}`
	if i, ok := nodeOf([]byte(event)); i != 42 || !ok {
		t.Errorf("it is of node %d: %v", i, ok)
	}
	for _, other := range []string{
		strings.Replace(event, "node-cert-agent", "node-cert-controller", 1),
		strings.Replace(event, "node-0042", "another", 1),
		strings.Replace(event, "0042", "x", 1),
		`{"type":"BOOKMARK"}`, "",
	} {
		if i, ok := nodeOf([]byte(other)); ok {
			t.Errorf("%s is of node %d", other, i)
		}
	}
}

func TestTheGenerationOfAnEvent(t *testing.T) {
	for event, want := range map[string]int{`{"metadata":{"name":"a","generation":17,"uid":"u"}}`: 17,
		`{"metadata":{"generation":3}}`: 3, `{"generation":`: 0, `{"type":"BOOKMARK"}`: 0} {
		if got := generation([]byte(event)); got != want {
			t.Errorf("%s has generation %d", event, got)
		}
	}
}

func TestNumbersOfProc(t *testing.T) {
	const status = "Name:\tcontroller\nVmHWM:\t  102400 kB\nVmRSS:\t   51200 kB\nEmpty:\n"
	for name, want := range map[string]int{"VmHWM": 102400, "VmRSS": 51200, "Empty": 0, "VmR": 0, "Missing": 0} {
		if got := number(status, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	const snmp = "Ip: Forwarding AttemptFails\nIp: 1 9\nTcp: RtoAlgorithm ActiveOpens AttemptFails\nTcp: 1 20 7\n"
	if got, err := attemptFails(snmp); got != 7 || err != nil {
		t.Errorf("failed are %d: %v", got, err)
	}
	const exposition = "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.25\n"
	if got, err := processTime(exposition); got != 1250*time.Millisecond || err != nil {
		t.Errorf("the processors were used for %v: %v", got, err)
	}
	if _, err := processTime("go_goroutines 5\n"); err == nil {
		t.Error("no time is no error")
	}
	if _, err := attemptFails("Udp: InDatagrams\nUdp: 1\n"); err == nil {
		t.Error("nothing is no error")
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for sizes, good := range map[string]bool{"500,2000": true, "1": true, "0": false, "": false, "5k": false, "20000": false} {
		p := options{rounds: 1, sources: 1, share: 1}
		if err := p.read(sizes); (err == nil) != good {
			t.Errorf("-nodes %q: %v", sizes, err)
		}
	}
	p := options{rounds: 1, sources: 1, share: 1, parts: []string{"boot", "boots"}}
	if p.read("1") == nil {
		t.Error("there is a part boots")
	}
	p = options{rounds: 1, sources: 1}
	if p.read("1") == nil {
		t.Error("a process may have no agent")
	}
	p.share = 1500
	for n, good := range map[int]bool{5000: true, 10001: false} {
		if err := p.mayOpen(n, 20000); (err == nil) != good {
			t.Errorf("%d nodes, which the API server has open: %v", n, err)
		}
	}
	if p.mayOpen(1500, 8000) == nil || p.mayOpen(1000, 8000) != nil {
		t.Error("the files of a process of agents are miscounted")
	}
}
