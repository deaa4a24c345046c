// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
)

var now = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// leafWith ends after left, of a life of a year.
func leafWith(left time.Duration) Leaf {
	return Leaf{Subject: "CN=x", SHA256: "aa", NotBefore: now.Add(left - 365*24*time.Hour), NotAfter: now.Add(left)}
}

const day = 24 * time.Hour

var policy = Policy{Mode: ModeManual, RenewBefore: 30 * day, WarnBefore: 21 * day}

func TestAPairIsJudgedByItsLifeAndByWhoRenewsIt(t *testing.T) {
	here := &CA{KeyHere: true, NotAfter: now.Add(10 * 365 * day)}
	facts := func(left time.Duration, change func(*Facts)) Facts {
		f := Facts{Leaf: leafWith(left), CA: here}
		if change != nil {
			change(&f)
		}
		return f
	}
	unattended, reports := policy, policy
	unattended.Mode = ModeRenew
	reports.Mode = ModeReport
	through, manually, silently := unattended, policy, reports
	through.ThroughEtcd, manually.ThroughEtcd, silently.ThroughEtcd = true, true, true
	requestable := func(f *Facts) { f.Name, f.CA = "apiserver-etcd-client", &CA{NotAfter: here.NotAfter} }
	for name, c := range map[string]struct {
		facts  Facts
		policy Policy
		state  State
		by     string
		why    string
	}{
		"far from its end":   {facts(60*day, nil), policy, OK, "", "a person has to"},
		"due":                {facts(29*day, nil), policy, Due, "", "renew now"},
		"due for us":         {facts(29*day, nil), unattended, Due, Us, ""},
		"due for us, still":  {facts(20*day, nil), unattended, Expiring, Us, ""},
		"due, and soon":      {facts(20*day, nil), policy, Expiring, "", "renew now"},
		"over":               {facts(-time.Second, nil), policy, Expired, "", "renew now"},
		"only reported":      {facts(22*day, nil), reports, OK, "", "only reports"},
		"reported, and soon": {facts(20*day, nil), reports, Expiring, "", "only reports"},
		"a key elsewhere": {facts(60*day, func(f *Facts) { f.CA = &CA{NotAfter: here.NotAfter} }), policy, OK, "",
			"not on this host"},
		"for another host to renew": {facts(29*day, requestable), policy, Due, "", "node-cert-agent renew request apiserver-etcd-client"},
		"unattended, without leave": {facts(29*day, requestable), unattended, Due, "", "renew request"},
		"unattended, with leave":    {facts(29*day, requestable), through, Due, Us, ""},
		"by hand, with leave":       {facts(29*day, requestable), manually, Due, "", "renew request"},
		"only reported, with leave": {facts(22*day, requestable), silently, OK, "", "not on this host"},
		"another pair of that CA": {facts(29*day, func(f *Facts) { requestable(f); f.Name = "x" }), through, OK, "",
			"not on this host"},
		"damaged, on another host": {facts(29*day, func(f *Facts) { requestable(f); f.Problem = "x" }), through, Unreadable, "", "x"},
		"no CA":                    {facts(20*day, func(f *Facts) { f.CA = nil }), policy, Expiring, "", "no CA"},
		"a CA that ends with it": {facts(60*day, func(f *Facts) { f.CA = &CA{KeyHere: true, NotAfter: f.Leaf.NotAfter} }), policy,
			OK, "", "CA has to be renewed first"},
		"a kubelet's": {facts(day, func(f *Facts) { f.Manager, f.CA = "kubelet", nil }), policy, OK, "kubelet", ""},
		"k3s'":        {facts(day, func(f *Facts) { f.Manager = "k3s" }), policy, Expiring, "", "when it starts"},
		"somebody else's file": {facts(60*day, func(f *Facts) { f.Foreign = "x.crt belongs to uid 7, not to root" }), policy, OK, "",
			"uid 7"},
		"damaged": {facts(60*day, func(f *Facts) { f.Problem = "x.key holds no private key" }), policy, Unreadable, "",
			"no private key"},
		"nothing there": {Facts{Problem: "/x.crt does not exist"}, policy, Unreadable, "", "does not exist"},
		// With a life of an hour thirty days would be always: a third of it counts, and a quarter for the warning.
		"a short life":      {facts(21*time.Minute, func(f *Facts) { f.Leaf.NotBefore = f.Leaf.NotAfter.Add(-time.Hour) }), policy, OK, "", "renew now"},
		"a short life, due": {facts(19*time.Minute, func(f *Facts) { f.Leaf.NotBefore = f.Leaf.NotAfter.Add(-time.Hour) }), policy, Due, "", "renew now"},
		// etcdadm gives leaves the NotBefore of their CA: a third of ten years would be always.
		"the CA's NotBefore": {facts(200*day, func(f *Facts) { f.Leaf.NotBefore = now.Add(-9 * 365 * day) }),
			Policy{Mode: ModeManual, RenewBefore: 365 * day}, OK, "", "renew now"},
	} {
		v := Judge(c.facts, nil, c.policy, now)
		if v.State != c.state || v.RenewedBy != c.by || !strings.Contains(v.NotRenewed, c.why) || (c.why == "") != (v.NotRenewed == "") {
			t.Errorf("%s: %s, renewed by %q, not because %q; want %s, %q, %q", name, v.State, v.RenewedBy, v.NotRenewed, c.state, c.by,
				c.why)
		}
	}
}

func TestWhoUsesAnotherCertificateIsStale(t *testing.T) {
	user := Component{Program: Scheduler, PID: 7, Started: now}
	address := "127.0.0.1:2379"
	other := Leaf{SHA256: "bb", NotAfter: now.Add(day)}
	for name, c := range map[string]struct {
		facts  Facts
		served []Served
		state  liveness.State
		reason string
	}{
		"started before the change": {Facts{Pair: Pair{AtStart: true}, Changed: now.Add(time.Second)}, nil, liveness.Stale, "pid 7"},
		"started after it":          {Facts{Pair: Pair{AtStart: true}, Changed: now.Add(-time.Second)}, nil, liveness.Live, ""},
		"nobody can see":            {Facts{}, nil, liveness.Unknown, "none shows"},
		"not asked":                 {Facts{Pair: Pair{Addresses: []string{address}}}, nil, liveness.Unknown, "nobody has asked"},
		"served":                    {Facts{Pair: Pair{Addresses: []string{address}}}, []Served{{Leaf: leafWith(day)}}, liveness.Live, ""},
		"serves another": {Facts{Pair: Pair{Addresses: []string{address}}},
			[]Served{{Leaf: leafWith(day)}, {Address: address, Leaf: other}}, liveness.Stale, address},
		"silent": {Facts{Pair: Pair{Addresses: []string{address}}},
			[]Served{{Leaf: leafWith(day)}, {Address: address, Problem: "nothing listens there"}}, liveness.Unknown, "nothing listens"},
	} {
		c.facts.Leaf, c.facts.Users = leafWith(day), []Component{user}
		v := Judge(c.facts, c.served, policy, now)
		if v.Use == nil || v.Use.State != c.state || !strings.Contains(v.Use.Reason, c.reason) {
			t.Errorf("%s: %+v, want %s, %q", name, v.Use, c.state, c.reason)
		}
	}
	if v := Judge(Facts{Leaf: leafWith(day)}, nil, policy, now); v.Use != nil {
		t.Errorf("a pair without users is used: %+v", v.Use)
	}
}

func TestAReportNamesTheFirstEndThatNobodyPrevents(t *testing.T) {
	verdict := func(name string, left time.Duration, by string) Verdict {
		return Verdict{Facts: Facts{Pair: Pair{Name: name}, Leaf: leafWith(left)}, RenewedBy: by}
	}
	r := NewReport("report", []Verdict{verdict("a", 9*day, ""), verdict("b", 5*day, "kubelet"), verdict("c", 7*day, ""),
		{Facts: Facts{Pair: Pair{Name: "unreadable"}}}}, nil, now)
	if r.Earliest == nil || r.Earliest.Pair != "b" || r.Unrenewed == nil || r.Unrenewed.Pair != "c" ||
		!r.Unrenewed.NotAfter.Equal(now.Add(7*day)) {
		t.Errorf("earliest %+v, unrenewed %+v", r.Earliest, r.Unrenewed)
	}
	if r := NewReport("renew", []Verdict{verdict("b", day, "kubelet")}, nil, now); r.Unrenewed != nil || r.Earliest == nil {
		t.Errorf("earliest %+v, unrenewed %+v", r.Earliest, r.Unrenewed)
	}
}
