// SPDX-License-Identifier: Apache-2.0

// Package gate judges whether a cluster of etcd is well enough for a pair of one of its hosts to be replaced. It is
// pure: the caller brings what was seen.
//
// The gate is open if every member that votes is well. A gate that demands no less would kill what it guards: with
// one member gone for good, all pairs would end. So shortly before the end of a pair a majority that includes the
// member of this host is enough.
//
// Sources: etcd's server/etcdserver/api/etcdhttp/health.go for what etcd calls healthy; etcd.io/docs on failure modes
// and learners.
package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxLag is how many entries of the log a member may be behind the first one.
const MaxLag = 5000

// Look is a cluster of etcd as it was seen.
type Look struct {
	// Problem is why no member says who the members are; one line.
	Problem string
	// Elsewhere says that no member is of this host.
	Elsewhere bool
	Members   []Member
	// Alarms are those that are on, as one line each.
	Alarms []string
}

// Member is what was seen of one member.
type Member struct {
	Name string
	// Own says that it is the one of this host.
	Own bool
	// Learner members have no vote.
	Learner bool
	// Problem is why it did not answer a question, or what it complains about; one line.
	Problem string
	// Leader is whom it follows; 0 is nobody.
	Leader uint64
	// Applied is the index of the last entry that it has applied.
	Applied uint64
}

// Judge says why a pair that has so long to live cannot be replaced now; empty if it can.
func Judge(l Look, left, degradedBelow time.Duration) (shut string) {
	if l.Problem != "" {
		return l.Problem
	}
	if len(l.Alarms) > 0 {
		return "etcd has an alarm: " + strings.Join(l.Alarms, ", ")
	}
	voters := slices.DeleteFunc(slices.Clone(l.Members), func(m Member) bool { return m.Learner })
	first, leader := lead(voters)
	var ill []string
	own, well := l.Elsewhere, 0
	for _, m := range voters {
		if why := m.ill(leader, first); why != "" {
			ill = append(ill, fmt.Sprintf("etcd member %s: %s", m.Name, why))
		} else {
			own = own || m.Own
			well++
		}
	}
	if learners := len(l.Members) - len(voters); learners > 0 {
		ill = append(ill, fmt.Sprintf("%d members of etcd are learners, or have not started", learners))
	}
	switch {
	case len(voters) == 0:
		return "etcd has no member that votes"
	case len(ill) == 0:
		return ""
	case left < degradedBelow && own && well > len(voters)/2:
		return ""
	}
	return strings.Join(ill, "; ")
}

// lead is the index that the furthest member has applied, and the leader that most of them follow.
func lead(voters []Member) (applied, leader uint64) {
	votes := map[uint64]int{}
	for _, m := range voters {
		if m.Problem != "" {
			continue
		}
		applied = max(applied, m.Applied)
		if votes[m.Leader]++; m.Leader != 0 && (leader == 0 || votes[m.Leader] > votes[leader]) {
			leader = m.Leader
		}
	}
	return applied, leader
}

// ill says what is the matter with a member.
func (m Member) ill(leader, first uint64) string {
	switch {
	case m.Problem != "":
		return m.Problem
	case m.Leader == 0:
		return "it has no leader"
	case m.Leader != leader:
		return "it follows another leader than the others"
	case first-m.Applied > MaxLag:
		return fmt.Sprintf("it is %d entries behind", first-m.Applied)
	}
	return ""
}
