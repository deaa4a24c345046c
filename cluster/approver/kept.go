// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"time"

	certificates "k8s.io/api/certificates/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/pending"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// What informers keep is what decides, and no more: others choose how many objects there are, and how large.

// keptRequest is what is kept of a CertificateSigningRequest. Of one that is decided, or not ours, that is its
// name.
type keptRequest struct {
	meta.ObjectMeta
	request pending.Request
	waits   bool
}

// keepRequest is the transform of the informer of requests; see cache.TransformFunc. It reads the claim once.
func keepRequest(p verdict.Policy) func(any) (any, error) {
	return func(o any) (any, error) {
		r, ok := o.(*certificates.CertificateSigningRequest)
		if !ok {
			return o, nil // it was kept before, or is gone
		}
		k := &keptRequest{ObjectMeta: bare(r)}
		claim, v := verdict.Read(r, p, time.Now())
		if k.waits = claim != nil || v.Action != verdict.Ignore; k.waits {
			k.request = pending.Request{Name: r.Name, UID: r.UID, Requester: r.Spec.Username, Made: r.CreationTimestamp.Time,
				Claim: claim, Verdict: v}
		}
		return k, nil
	}
}

// keepState is the transform of the informer of states.
func keepState(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	s, err := readNodeState(u)
	if err != nil {
		return &nodeState{ObjectMeta: bare(u)}, nil // one node's object must not stop the watch of all
	}
	allowed, ok := s.Annotations[verdict.AllowAnnotation]
	s.ObjectMeta = bare(&s)
	if ok {
		s.Annotations = map[string]string{verdict.AllowAnnotation: allowed}
	}
	return &s, nil
}

// keepNode is the transform of the informer of Nodes: that there is one says all.
func keepNode(o any) (any, error) {
	n, ok := o.(*meta.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	return &meta.PartialObjectMetadata{TypeMeta: n.TypeMeta, ObjectMeta: bare(n)}, nil
}

func bare(o meta.Object) meta.ObjectMeta {
	return meta.ObjectMeta{Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}
