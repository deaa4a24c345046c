// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// Request is what is kept of a CertificateSigningRequest that waits. Specs never change, so that it is read
// once.
type Request struct {
	Name string
	UID  types.UID
	// Requester is who asks, and Made when, by the API server's word.
	Requester string
	Made      time.Time
	// Claim is nil if the object alone decides; Verdict says what then.
	Claim   *verdict.Claim
	Verdict verdict.Verdict
}

// Class is how urgent the request is.
func (r Request) Class() Class {
	if r.Claim != nil && r.Claim.Class == verdict.Agent {
		return Renewal
	}
	return First
}

// Index finds requests by name, by node, and by requester and node. It is safe for concurrent use.
type Index struct {
	mu       sync.Mutex
	requests map[string]Request
	nodes    map[string]map[string]struct{}
	pairs    map[pair]map[string]struct{}
	newest   map[pair]string
	compared int // for a test
}

type pair struct{ requester, node string }

// NewIndex makes an empty one.
func NewIndex() *Index {
	return &Index{requests: map[string]Request{}, nodes: map[string]map[string]struct{}{},
		pairs: map[pair]map[string]struct{}{}, newest: map[pair]string{}}
}

// Len is how many requests there are.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.requests)
}

// Get finds a request by its name.
func (x *Index) Get(name string) (Request, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r, ok := x.requests[name]
	return r, ok
}

// Put adds a request, in place of one of its name.
func (x *Index) Put(r Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(r.Name)
	x.requests[r.Name] = r
	if r.Claim == nil {
		return
	}
	p := pair{r.Requester, r.Claim.Node}
	add(x.nodes, p.node, r.Name)
	add(x.pairs, p, r.Name)
	if other, ok := x.newest[p]; !ok || x.later(r, x.requests[other]) {
		x.newest[p] = r.Name
	}
}

// Drop forgets a request, if it is the one of this UID; it is false if there is none. If that makes another
// the newest of its requester for its node, that is the heir.
func (x *Index) Drop(name string, uid types.UID) (heir string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r, there := x.requests[name]; !there || r.UID != uid {
		return "", false
	}
	return x.drop(name), true
}

func (x *Index) drop(name string) (heir string) {
	r, ok := x.requests[name]
	if !ok {
		return ""
	}
	delete(x.requests, name)
	if r.Claim == nil {
		return ""
	}
	p := pair{r.Requester, r.Claim.Node}
	remove(x.nodes, p.node, name)
	remove(x.pairs, p, name)
	if x.newest[p] != name {
		return ""
	}
	delete(x.newest, p)
	for other := range x.pairs[p] {
		if heir == "" || x.later(x.requests[other], x.requests[heir]) {
			heir = other
		}
	}
	if heir != "" {
		x.newest[p] = heir
	}
	return heir
}

// OfNode are the names of all requests for a node's identity, in no order.
func (x *Index) OfNode(node string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.nodes[node]))
}

// Newer is the newest request of the same requester for the same node, or empty if that is this one.
func (x *Index) Newer(r Request) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	newest, ok := x.newest[pair{r.Requester, r.Claim.Node}]
	if !ok || !x.later(x.requests[newest], r) {
		return ""
	}
	return newest
}

// later is true of the younger request. Times of the API have seconds; of two in the same second each
// replica has to choose the same.
func (x *Index) later(a, b Request) bool {
	x.compared++
	if a.Made.Equal(b.Made) {
		return a.Name > b.Name
	}
	return a.Made.After(b.Made)
}

func add[K comparable](sets map[K]map[string]struct{}, k K, name string) {
	if sets[k] == nil {
		sets[k] = map[string]struct{}{}
	}
	sets[k][name] = struct{}{}
}

func remove[K comparable](sets map[K]map[string]struct{}, k K, name string) {
	delete(sets[k], name)
	if len(sets[k]) == 0 {
		delete(sets, k)
	}
}
