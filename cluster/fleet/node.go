// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"slices"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Node is what is known of one node: that it joined, and what its agent reported. One of both is there.
type Node struct {
	Name string
	// Labels are those of the Node, not nil if there is one.
	Labels labels.Set
	// Joined is when the Node was made; zero if there is none.
	Joined time.Time
	// Report is nil if the agent never reported.
	Report *Report
}

// Report is what of a NodeCertificateState matters here. A node can say what it likes about itself; it is
// believed, since a node that lies harms itself.
type Report struct {
	// At is when it was written, by the clock of the API server.
	At time.Time
	// State is the state of following the ControllerConfig, in a word or two of the node's.
	State string
	// Held are removals of trust that wait on the node, Pending units that have yet to load their files, and Breaker
	// is the unit whose actions failed too often.
	Held, Pending int
	Breaker       string
	// Synced is the version of the ControllerConfig that the host was in line with; zero if it says none.
	Synced plan.ControllerConfig
	*Disk
}

// Disk is what a node has or can have. It is not changed: nodes may share one.
type Disk struct {
	// Fields are those that the host takes; nil if the agent does not say.
	Fields []plan.Field
	// Files are what is on its disk.
	Files map[plan.Key]File
}

// File is one on a node's disk.
type File struct {
	Certificates Set
	// Use is how its consumers stand; empty while that is open.
	Use liveness.State
}

func (n Node) since() time.Time {
	if n.Report != nil {
		return n.Report.At
	}
	return n.Joined
}

// Set is a set of certificates. Nodes have few different ones, and each is kept once: 5000 nodes with 500
// certificates in each of 10 files would be 800 MB else.
type Set struct{ sorted unique.Handle[string] }

// NewSet is the set of all.
func NewSet(all []pki.Fingerprint) Set {
	all = slices.Clone(all)
	slices.SortFunc(all, compare)
	all = slices.Compact(all)
	sorted := make([]byte, 0, len(all)*len(pki.Fingerprint{}))
	for _, c := range all {
		sorted = append(sorted, c[:]...)
	}
	return Set{unique.Make(string(sorted))}
}

// Has tells whether c is in the set. Nothing is in the zero Set.
func (s Set) Has(c pki.Fingerprint) bool {
	const size = len(c)
	if s == (Set{}) {
		return false
	}
	all := s.sorted.Value()
	low, high := 0, len(all)/size
	for low < high {
		mid := (low + high) / 2
		switch at := all[mid*size : (mid+1)*size]; {
		case at == string(c[:]):
			return true
		case at < string(c[:]):
			low = mid + 1
		default:
			high = mid
		}
	}
	return false
}

func compare(a, b pki.Fingerprint) int { return bytes.Compare(a[:], b[:]) }
