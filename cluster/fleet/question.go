// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Question is whether every node that counts has the certificates of one bundle. The zero Asked asks what the nodes
// said at any time; that is for figures. A decision needs the version that the nodes had to read before they
// reported: a node that was installed again since its last report has not what that says.
type Question struct {
	// Key is the bundle.
	Key plan.Key
	// Certificates are what each node shall have. If there are none, no node has them.
	Certificates []pki.Fingerprint
	// Asked is the version of the ControllerConfig that a node must have followed, or a later one.
	Asked plan.ControllerConfig
	// Ignore selects the nodes that do not count, by the labels of the Node. It may be nil.
	Ignore labels.Selector
}

// Answer is how the nodes stand.
type Answer struct {
	// Have is how many nodes have everything, of All that count.
	Have, All int
	// Missing are those that do not, by name.
	Missing []Missing
}

// Missing is a node that lacks something.
type Missing struct {
	Node string
	// Reason is what it lacks, in a few words that are safe to print.
	Reason string
	// Since is when it last reported, or joined if it never did; zero if it did neither.
	Since time.Time
}

// Settled tells whether every node that counts has everything. Where no node counts, nobody is asked, and that is no
// agreement.
func (a Answer) Settled() bool { return a.All > 0 && a.Have == a.All }

// listed is how many nodes a sentence names.
const listed = 3

// String says who lacks what, in one sentence.
func (a Answer) String() string {
	if a.All == 0 {
		return "0 of 0 nodes have what remains; no node is known that takes the field and is not ignored"
	}
	if len(a.Missing) == 0 {
		return fmt.Sprintf("%d of %d nodes have what remains", a.Have, a.All)
	}
	var who []string
	for _, m := range a.Missing[:min(len(a.Missing), listed)] {
		who = append(who, m.Node+" "+m.Reason)
	}
	if more := len(a.Missing) - len(who); more > 0 {
		who = append(who, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d of %d nodes have what remains; %s", a.Have, a.All, strings.Join(who, ", "))
}

// Judge asks each node. It reads nothing else, so that the same nodes give the same answer.
func (q Question) Judge(nodes []Node) Answer {
	var a Answer
	for _, n := range nodes {
		if !q.counts(n) {
			continue
		}
		a.All++
		if reason := q.lacks(n); reason != "" {
			a.Missing = append(a.Missing, Missing{Node: n.Name, Reason: reason, Since: n.since()})
			continue
		}
		a.Have++
	}
	slices.SortFunc(a.Missing, func(x, y Missing) int { return cmp.Compare(x.Node, y.Node) })
	return a
}

// counts tells whether the node has to have it. A host that does not take the field says so. One that only has no
// file of it may have failed to write it, and counts.
func (q Question) counts(n Node) bool {
	if q.Ignore != nil && !q.Ignore.Empty() && n.Labels != nil && q.Ignore.Matches(n.Labels) {
		return false
	}
	return n.Report == nil || n.Report.Fields == nil || slices.Contains(n.Report.Fields, q.Key.Field)
}

// lacks is why a node does not have everything for certain, or nothing.
func (q Question) lacks(n Node) string {
	if n.Report == nil {
		return "has never reported"
	}
	if !q.followed(n.Report.Synced) {
		return "has not reported since it was asked"
	}
	f := n.Report.Files[q.Key]
	if len(q.Certificates) == 0 {
		return "would be left without any certificate"
	}
	for _, c := range q.Certificates {
		if !f.Certificates.Has(c) {
			return fmt.Sprintf("lacks sha256:%.16s", c)
		}
	}
	if f.Use == liveness.Stale {
		return "has a consumer that still uses the file of before"
	}
	return ""
}

// followed tells whether a node that is in line with v has read what was asked. Versions of one object can be
// compared from Kubernetes 1.35 on, and as a matter of fact before (KEP-5504); those that cannot be must be equal.
func (q Question) followed(v plan.ControllerConfig) bool {
	if q.Asked == (plan.ControllerConfig{}) || q.Asked == v {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(v.ResourceVersion, q.Asked.ResourceVersion)
	return err == nil && v.UID == q.Asked.UID && order >= 0
}
