// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

var (
	now   = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	march = time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
	april = time.Date(2027, 4, 1, 12, 30, 1, 0, time.FixedZone("", 3600))
)

const stated = "2027-03-01T00:00:00Z"

// usual is a Machine of yesterday without annotation, whose node reported ten minutes ago that a pair ends in March
// that it will not renew, and another in April.
func usual() Input {
	return Input{Now: now, StaleAfter: 3 * time.Hour, Machine: Machine{Created: now.Add(-24 * time.Hour)},
		Report: &Report{Written: now.Add(-10 * time.Minute), Heartbeat: now.Add(-10 * time.Minute),
			Renewal: &v1alpha1.StateRenewal{UnrenewedNotAfter: metav1.NewTime(march), EarliestNotAfter: metav1.NewTime(april),
				ObservedTime: metav1.NewTime(now.Add(-20 * time.Minute))}}}
}

func TestWhatAMachineStates(t *testing.T) {
	ours := func(value string) func(*Input) {
		return func(in *Input) { in.Machine.Value, in.Machine.Ours = value, true }
	}
	for sentence, c := range map[string]struct {
		change []func(*Input)
		want   Decision
	}{
		"the first end that nobody will renew": {nil, Decision{Action: Set, Value: stated}},
		"nothing new if it stands there":       {[]func(*Input){ours(stated)}, Decision{}},
		"another date after a renewal": {[]func(*Input){ours("2027-01-01T00:00:00Z")},
			Decision{Action: Set, Value: stated}},
		"the first end of all if the host renews each": {[]func(*Input){renewsAll},
			Decision{Action: Set, Value: "2027-04-01T11:30:01Z"}},
		"nothing any more of a host that says nothing": {[]func(*Input){ours(stated), saysNothing},
			Decision{Action: Remove}},
		"nothing any more of a host without pairs": {[]func(*Input){ours(stated), noPairs}, Decision{Action: Remove}},
		"nothing of a host that says nothing":      {[]func(*Input){saysNothing}, Decision{}},
		"what a person wrote, who is told": {[]func(*Input){ours("2030-01-01T00:00:00Z"), theirs},
			Decision{Reason: Foreign, Fact: "somebody else set " + Annotation + "; it would be " + stated}},
		"what a person wrote, though it is what we would":    {[]func(*Input){ours(stated), theirs}, Decision{}},
		"what a person wrote, though the host says nothing":  {[]func(*Input){ours("x"), theirs, saysNothing}, Decision{}},
		"nothing of a pair that a new Machine would get":     {[]func(*Input){sharesIt}, Decision{}},
		"a later end even of a pair that it would get":       {[]func(*Input){sharesIt, ours("2027-01-01T00:00:00Z")}, Decision{Action: Set, Value: stated}},
		"the end of a pair once the Secret has a newer one":  {[]func(*Input){sharesIt, renewedSecret}, Decision{Action: Set, Value: stated}},
		"nothing by the report of an earlier host":           {[]func(*Input){youngMachine, ours("x")}, Decision{}},
		"nothing new without a report":                       {[]func(*Input){ours("x"), func(in *Input) { in.Report = nil }}, Decision{Reason: NoState, Fact: "its node has no NodeCertificateState"}},
		"nothing new while the node is silent":               {[]func(*Input){ours("x"), silent}, Decision{Reason: StateStale, Fact: "the agent of its node last reported at 2026-11-23T04:59:59Z"}},
		"nothing removed while the node is silent":           {[]func(*Input){ours("x"), saysNothing, silent}, Decision{Reason: StateStale, Fact: "the agent of its node last reported at 2026-11-23T04:59:59Z"}},
		"nothing new while nobody looks at the certificates": {[]func(*Input){ours("x"), blind}, Decision{Reason: StateStale, Fact: "the agent of its node last looked at the certificates at 2026-11-23T04:49:59Z"}},
		"no date that RFC 3339 cannot write": {[]func(*Input){ours(stated), ends("9999-12-31T23:59:59-01:00")},
			Decision{Reason: Unreadable, Fact: "the agent of its node states the year 10000"}},
		"no date before all years": {[]func(*Input){ends("0000-01-01T00:00:00+01:00")},
			Decision{Reason: Unreadable, Fact: "the agent of its node states the year -1"}},
		"the last date that there is": {[]func(*Input){ends("9999-12-31T23:59:59Z")},
			Decision{Action: Set, Value: "9999-12-31T23:59:59Z"}},
		"a date although the node's clock is a year behind": {[]func(*Input){slowClock}, Decision{Action: Set, Value: stated}},
	} {
		t.Run(sentence, func(t *testing.T) {
			in := usual()
			for _, change := range c.change {
				change(&in)
			}
			if got := Decide(in); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func theirs(in *Input)       { in.Machine.Ours = false }
func renewsAll(in *Input)    { in.Report.Renewal.UnrenewedNotAfter = metav1.Time{} }
func saysNothing(in *Input)  { in.Report.Renewal = nil }
func silent(in *Input)       { in.Report.Written = now.Add(-3*time.Hour - time.Second) }
func sharesIt(in *Input)     { in.Shared = march.Add(time.Second / 2) }
func youngMachine(in *Input) { in.Machine.Created = now.Add(-5 * time.Minute) }

func renewedSecret(in *Input) { in.Shared = march.AddDate(1, 0, 0) }

func noPairs(in *Input) {
	in.Report.Renewal.UnrenewedNotAfter, in.Report.Renewal.EarliestNotAfter = metav1.Time{}, metav1.Time{}
}

// ends is a node that states any text for the first end, which the API server takes if it looks like a date.
func ends(text string) func(*Input) {
	return func(in *Input) {
		if err := in.Report.Renewal.UnrenewedNotAfter.UnmarshalJSON([]byte(`"` + text + `"`)); err != nil {
			panic(err)
		}
	}
}

func blind(in *Input) {
	in.Report.Renewal.ObservedTime = metav1.NewTime(in.Report.Heartbeat.Add(-3*time.Hour - time.Second))
}

func slowClock(in *Input) {
	in.Report.Heartbeat = in.Report.Heartbeat.AddDate(-1, 0, 0)
	in.Report.Renewal.ObservedTime = metav1.NewTime(in.Report.Heartbeat)
}
