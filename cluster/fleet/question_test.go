// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/cluster/fleet"
)

var (
	key  = plan.Key{Field: "rootCAData"}
	a, b = pki.Fingerprint{1}, pki.Fingerprint{2}
	noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
)

func version(resource string) plan.ControllerConfig {
	return plan.ControllerConfig{UID: "u", ResourceVersion: resource}
}

// node reports certificates, of the version 10.
func node(change func(*fleet.Node), certificates ...pki.Fingerprint) fleet.Node {
	n := fleet.Node{Name: "n", Labels: labels.Set{"pool": "x"}, Joined: noon, Report: &fleet.Report{
		At: noon.Add(time.Hour), Synced: version("10"), Disk: &fleet.Disk{
			Fields: []plan.Field{key.Field},
			Files:  map[plan.Key]fleet.File{key: {Certificates: fleet.NewSet(certificates), Use: liveness.Live}}}}}
	if change != nil {
		change(&n)
	}
	return n
}

// Changes of the node or of the question, each for one line of the table below.
func reports(certificates []pki.Fingerprint, use liveness.State) func(*fleet.Node) {
	return func(n *fleet.Node) {
		n.Report.Files[key] = fleet.File{Certificates: fleet.NewSet(certificates), Use: use}
	}
}

func takes(fields ...plan.Field) func(*fleet.Node) {
	return func(n *fleet.Node) { n.Report.Fields = fields }
}

func ignores(by string) func(*fleet.Question) {
	selector, err := labels.Parse(by)
	if err != nil {
		panic(err)
	}
	return func(q *fleet.Question) { q.Ignore = selector }
}

func hasNoFile(n *fleet.Node)   { n.Report.Files = nil }
func hasFailed(n *fleet.Node)   { n.Report.Synced = plan.ControllerConfig{} }
func isNoNode(n *fleet.Node)    { n.Labels, n.Joined = nil, time.Time{} }
func another(q *fleet.Question) { q.Asked = plan.ControllerConfig{UID: "v", ResourceVersion: "9"} }
func nothing(q *fleet.Question) { q.Certificates = nil }
func inList(q *fleet.Question)  { q.Key.Name = "registry" }

func TestAnAnswerSaysWhoLacksWhat(t *testing.T) {
	both := []pki.Fingerprint{a, b}
	const (
		has, counts = "1 of 1", "0 of 0"
		noFirst     = "0 of 1 n lacks sha256:0100000000000000"
		noSecond    = "0 of 1 n lacks sha256:0200000000000000"
		behind      = "0 of 1 n has not reported since it was asked"
	)
	for sentence, c := range map[string]struct {
		node fleet.Node
		ask  func(*fleet.Question)
		want string
	}{
		"a node has everything":          {node(nil, both...), nil, has},
		"a node has more than is asked":  {node(nil, a, b, pki.Fingerprint{3}), nil, has},
		"a node lacks one of two":        {node(nil, a), nil, noSecond},
		"a node has no file":             {node(hasNoFile), nil, noFirst},
		"a node has never reported":      {fleet.Node{Name: "n", Joined: noon}, nil, "0 of 1 n has never reported"},
		"a node is behind":               {node(nil, both...), asked("11"), behind},
		"a node is where it was asked":   {node(nil, both...), asked("10"), has},
		"a node is further than that":    {node(nil, both...), asked("9"), has},
		"longer versions are later":      {node(nil, both...), asked("100"), behind},
		"a node followed another object": {node(nil, both...), another, behind},
		"a version is no number":         {node(nil, both...), asked("x"), behind},
		"a node that failed":             {node(hasFailed, both...), asked("1"), behind},
		"a consumer is stale": {node(reports(both, liveness.Stale)), nil,
			"0 of 1 n has a consumer that still uses the file of before"},
		"a consumer cannot be asked":     {node(reports(both, liveness.Unknown)), nil, has},
		"a host does not take the field": {node(takes("other")), nil, counts},
		"an older agent says no fields":  {node(takes()), nil, noFirst},
		"a node is named not to count":   {node(nil), ignores("pool=x"), counts},
		"a selector of nothing":          {node(nil), ignores(""), noFirst},
		"a machine without a Node":       {node(isNoNode), ignores("pool!=y"), noFirst},
		"nothing would remain":           {node(nil, both...), nothing, "0 of 1 n would be left without any certificate"},
		"the file of another registry":   {node(nil, both...), inList, noFirst},
	} {
		q := fleet.Question{Key: key, Certificates: both}
		if c.ask != nil {
			c.ask(&q)
		}
		answer := q.Judge([]fleet.Node{c.node})
		got := fmt.Sprintf("%d of %d", answer.Have, answer.All)
		for _, m := range answer.Missing {
			got += " " + m.Node + " " + m.Reason
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", sentence, got, c.want)
		}
	}
}

func asked(resource string) func(*fleet.Question) {
	return func(q *fleet.Question) { q.Asked = version(resource) }
}

func TestNobodyAgreesForNobody(t *testing.T) {
	answer := fleet.Question{Key: key, Certificates: []pki.Fingerprint{a}}.Judge(nil)
	if answer.Settled() || !strings.Contains(answer.String(), "no node is known") {
		t.Errorf("a cluster of which no node is known says %s, and settled %v", answer, answer.Settled())
	}
}

func TestAnAnswerNamesThreeNodesAndCountsTheOthers(t *testing.T) {
	var nodes []fleet.Node
	for i := range 5 {
		nodes = append(nodes, fleet.Node{Name: fmt.Sprint("n", 4-i), Joined: noon})
	}
	got := fleet.Question{Key: key, Certificates: []pki.Fingerprint{a}}.Judge(nodes)
	want := "0 of 5 nodes have what remains; " +
		"n0 has never reported, n1 has never reported, n2 has never reported, and 2 more"
	if got.String() != want || !got.Missing[0].Since.Equal(noon) {
		t.Errorf("%v", got)
	}
}

func TestASetHasWhatItWasMadeOf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		in := make(map[pki.Fingerprint]bool)
		var all []pki.Fingerprint
		for range r.IntN(9) {
			c := pki.Fingerprint{byte(r.IntN(8)), 0, byte(r.IntN(2))}
			in[c], all = true, append(all, c)
		}
		s := fleet.NewSet(all)
		for i := range 16 {
			c := pki.Fingerprint{byte(i % 8), 0, byte(i / 8)}
			if s.Has(c) != in[c] {
				t.Fatalf("%v: %v, want %v", all, c, in[c])
			}
		}
	}
	if (fleet.Set{}).Has(pki.Fingerprint{}) {
		t.Error("the zero set has something")
	}
}
