// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	certificates "k8s.io/api/certificates/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/pending"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// Examination is what the approver finds about one request.
type Examination struct {
	Request *certificates.CertificateSigningRequest
	// Claim is nil if the request alone decides.
	Claim   *verdict.Claim
	Verdict verdict.Verdict

	facts facts
}

// Examiner finds what the approver would, for a person who approves by hand. It writes nothing but questions about
// rights.
type Examiner struct{ *controller }

// NewExaminer makes an Examiner that asks the API server of config. It knows no list of nodes, and the Machines of
// OpenShift if it is told to.
func NewExaminer(config *rest.Config, machines bool) (*Examiner, error) {
	o := Options{Policy: verdict.Shipped, Machines: machines, Log: zap.NewNop(),
		Listed: func(string) (bool, error) { return false, nil }}
	to, _, err := connect(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %v", err)
	}
	return &Examiner{newController(to, nil, o)}, nil
}

// Examine judges the request of that name as the approver would if it had watched the nodes for as long as they have
// reported: when a node wrote last is what the API server noted, which the node could have written itself.
func (e *Examiner) Examine(ctx context.Context, name string) (x Examination, err error) {
	x.Request, err = e.client.CertificatesV1().CertificateSigningRequests().Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return x, fmt.Errorf("reading the request: %v", err)
	}
	if x.Claim, x.Verdict = verdict.Read(x.Request, e.Policy, time.Now()); x.Claim == nil {
		return x, nil
	}
	if err := e.learn(ctx, x.Claim); err != nil {
		return x, err
	}
	x.facts, x.Verdict, err = e.gather(ctx, x.Request, pending.Request{Name: name, UID: x.Request.UID,
		Requester: x.Request.Spec.Username, Made: x.Request.CreationTimestamp.Time, Claim: x.Claim})
	return x, err
}

// Waiting examines the requests for a node's identity that nobody has decided.
func (e *Examiner) Waiting(ctx context.Context, node string) (all []Examination, err error) {
	if err := e.learn(ctx, &verdict.Claim{Node: node}); err != nil {
		return nil, err
	}
	for _, name := range e.index.OfNode(node) {
		x, err := e.Examine(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}

// learn reads what the controller has from its informers: the other requests, and for a token whom it has served.
func (e *Examiner) learn(ctx context.Context, claim *verdict.Claim) error {
	requests := func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
		o.FieldSelector = "spec.signerName=" + csr.Signer
		return e.client.CertificatesV1().CertificateSigningRequests().List(ctx, o)
	}
	err := pager.New(requests).EachListItem(ctx, meta.ListOptions{}, func(o runtime.Object) error {
		kept, err := keepRequest(e.Policy)(o)
		if k, ok := kept.(*keptRequest); ok && k.waits {
			e.index.Put(k.request)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("listing the requests: %v", err)
	}
	states := func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
		if claim.Class != verdict.Token {
			o.FieldSelector = "metadata.name=" + claim.Node
		}
		return e.states.List(ctx, o)
	}
	err = pager.New(states).EachListItem(ctx, meta.ListOptions{}, func(o runtime.Object) error {
		kept, err := keepState(o)
		if s, ok := kept.(*nodeState); ok {
			at := v1alpha1.Reported(o.(meta.Object).GetManagedFields())
			e.seen.of[s.Name] = heartbeat{s.UID, s.ResourceVersion, s.Status, at}
			return e.reported.Add(s)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("listing the NodeCertificateStates: %v", err)
	}
	return nil
}

// Approve notes about the node what the approver would, so that a token for single use is deleted when it has served,
// and sets the condition, with message as what an auditor reads. It fails if the request was changed since.
func (e *Examiner) Approve(ctx context.Context, x Examination, by, message string) error {
	if c := x.Claim; c != nil && c.Class != verdict.Agent {
		if c.Class == verdict.Token { // what waits may do so for a reason that was found before the token was read
			if err := e.askToken(ctx, *c, &x.facts); err != nil {
				return err
			}
		}
		if err := e.recordApproval(ctx, *c, x.facts); err != nil {
			return err
		}
	}
	o, approved := x.Request, x.Request.DeepCopy()
	approved.Status.Conditions = append(approved.Status.Conditions, condition(certificates.CertificateApproved, message))
	_, err := e.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, o.Name, approved,
		meta.UpdateOptions{FieldManager: by})
	if err != nil {
		return fmt.Errorf("approving: %v", err)
	}
	return nil
}
