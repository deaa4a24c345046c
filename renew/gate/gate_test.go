// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"testing"
	"time"
)

func TestTheGateIsOpenForAClusterThatIsWellAndLastlyForAMajority(t *testing.T) {
	const day = 24 * time.Hour
	well := func(name string, change ...func(*Member)) Member {
		m := Member{Name: name, Leader: 7, Applied: 100_000, Own: name == "a"}
		for _, c := range change {
			c(&m)
		}
		return m
	}
	dead := func(m *Member) { m.Problem = "connection refused" }
	for name, c := range map[string]struct {
		look Look
		left time.Duration
		want string
	}{
		"one member":                      {Look{Members: []Member{well("a")}}, 30 * day, ""},
		"three":                           {Look{Members: []Member{well("a"), well("b"), well("c")}}, 30 * day, ""},
		"nobody answers":                  {Look{Problem: "no etcd"}, day, "no etcd"},
		"no member":                       {Look{}, day, "no member that votes"},
		"one of three is dead":            {Look{Members: []Member{well("a"), well("b"), well("c", dead)}}, 30 * day, "member c: connection"},
		"the same, shortly before":        {Look{Members: []Member{well("a"), well("b"), well("c", dead)}}, day, ""},
		"our own is dead, shortly before": {Look{Members: []Member{well("a", dead), well("b"), well("c")}}, day, "member a"},
		"two of three are dead":           {Look{Members: []Member{well("a"), well("b", dead), well("c", dead)}}, day, "member b"},
		"two of four":                     {Look{Members: []Member{well("a"), well("b"), well("c", dead), well("d", dead)}}, day, "c"},
		"the only one is dead":            {Look{Members: []Member{well("a", dead)}}, day, "member a"},
		"no leader":                       {Look{Members: []Member{well("a", func(m *Member) { m.Leader = 0 })}}, day, "no leader"},
		"two leaders": {Look{Members: []Member{well("a"), well("b"), well("c", func(m *Member) { m.Leader = 8 })}}, 30 * day,
			"member c: it follows another"},
		"far behind": {Look{Members: []Member{well("a"), well("b"), well("c", func(m *Member) { m.Applied -= MaxLag + 1 })}}, 30 * day,
			"5001 entries behind"},
		"a bit behind": {Look{Members: []Member{well("a"), well("b", func(m *Member) { m.Applied -= MaxLag })}}, 30 * day, ""},
		"a learner": {Look{Members: []Member{well("a"), well("b", func(m *Member) { m.Learner = true })}}, 30 * day,
			"1 members of etcd are learners"},
		"a learner, shortly before": {Look{Members: []Member{well("a"), well("b"), well("c", func(m *Member) { m.Learner = true })}}, day,
			""},
		"etcd elsewhere, shortly before": {Look{Elsewhere: true, Members: []Member{well("b"), well("c"), well("d", dead)}}, day, ""},
		"an alarm":                       {Look{Members: []Member{well("a")}, Alarms: []string{"no space"}}, day, "no space"},
	} {
		got := Judge(c.look, c.left, 7*day)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestNoTwoMinoritiesArePassed: whatever is dead, the gate is open to no more than one half of a split cluster.
func TestNoTwoMinoritiesArePassed(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for dead := range 1 << n {
			count, own := 0, dead&1 == 0
			var members []Member
			for i := range n {
				m := Member{Name: "m", Own: i == 0, Leader: 1, Applied: 1}
				if dead&(1<<i) != 0 {
					m.Problem = "dead"
					count++
				}
				members = append(members, m)
			}
			open := Judge(Look{Members: members}, 0, time.Hour) == ""
			if want := own && n-count > n/2; open != want {
				t.Fatalf("%d of %d are dead, our own too: %t: open %t, want %t", count, n, !own, open, want)
			}
		}
	}
}
