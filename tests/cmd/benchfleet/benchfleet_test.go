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

func TestQuantilesAreByNearestRank(t *testing.T) {
	var s samples
	for i := range 100 {
		s = append(s, time.Duration(100-i)*time.Second)
	}
	for q, want := range map[float64]float64{0: 1, .5: 51, .95: 96, .99: 100, 1: 100} {
		if got := s.at(q); got != want {
			t.Errorf("the quantile %v of 1 to 100 seconds is %v, want %v", q, got, want)
		}
	}
	if s[0] != 100*time.Second {
		t.Error("the samples were sorted in place")
	}
	if got := s[:1].at(.5); got != 100 {
		t.Errorf("the median of one sample is %v", got)
	}
}

func TestWhatComesBeforeTheAnswerTakesNoTime(t *testing.T) {
	now := time.Now()
	got := since(now, []time.Time{now.Add(-time.Second), now.Add(time.Second)})
	if !slices.Equal(got, samples{0, time.Second}) {
		t.Errorf("it took %v", got)
	}
}

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
	b.mark(0) // before any round
	b.round(2)
	b.mark(1)
	first := b.at[1]
	b.mark(1)
	b.mark(2) // of a larger fleet
	if b.at[1] != first || b.missing() != 1 {
		t.Errorf("%d are left, and the second mark is at %v", b.missing(), b.at[1])
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.wait(ctx, "a test", time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("it waits no more, because of %v", err)
	}
	b.mark(0)
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

func TestOnlyTheRequestsThatCountAreCounted(t *testing.T) {
	const log = `{"stage":"ResponseStarted","verb":"watch","objectRef":{"resource":"controllerconfigs"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"watch","objectRef":{"resource":"controllerconfigs"},"responseStatus":{"code":200}}
{"stage":"ResponseStarted","verb":"watch","objectRef":{"resource":"controllerconfigs"},"responseStatus":{"code":403}}
{"stage":"ResponseComplete","verb":"watch","objectRef":{"resource":"controllerconfigs"},"responseStatus":{"code":403}}
{"stage":"ResponseComplete","verb":"patch","objectRef":{"resource":"nodecertificatestates"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"patch","objectRef":{"resource":"nodecertificatestates"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"get","requestURI":"/version?x=y","responseStatus":{"code":200}}
{"stage":"Respo`
	c, err := count(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"2 patch nodecertificatestates 200", "1 get /version 200", "1 watch controllerconfigs 200",
		"1 watch controllerconfigs 403"}
	if got := c.lines(); !slices.Equal(got, want) {
		t.Errorf("counted are %q", got)
	}
	if got := c.total("nodecertificatestates"); got != 3 {
		t.Errorf("but for reports there are %d", got)
	}
	if _, err := count(strings.NewReader("no audit log\n")); err == nil {
		t.Error("what is no audit log was counted")
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

func TestAMissedGoalIsSaid(t *testing.T) {
	var tb table
	tb.head("%d nodes", 5)
	tb.judge("equal", 2, 2, "s")
	if tb.missed {
		t.Error("a figure that equals its goal missed it")
	}
	tb.judge("above", 2.5, 2, "s")
	tb.note("more", "%d", 3)
	var out strings.Builder
	if err := tb.print(&out); err != nil || !tb.missed {
		t.Errorf("missed: %v, %v", tb.missed, err)
	}
	for _, words := range []string{"5 nodes", "2 s        2 s    OK", "2.50 s     2 s    MISSED"} {
		if !strings.Contains(out.String(), words) {
			t.Errorf("the table does not say %q:\n%s", words, out.String())
		}
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for sizes, good := range map[string]bool{"500,2000": true, "1": true, "0": false, "": false, "5k": false, "20000": false} {
		p := options{rounds: 1, sources: 1}
		if err := p.read(sizes); (err == nil) != good {
			t.Errorf("-nodes %q: %v", sizes, err)
		}
	}
	p := options{rounds: 1, sources: 1, parts: []string{"boot", "boots"}}
	if p.read("1") == nil {
		t.Error("there is a part boots")
	}
}
