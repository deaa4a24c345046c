// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorization "k8s.io/api/authorization/v1"
	certificates "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/pending"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// facts is what was found out about a claim.
type facts struct {
	verdict.Facts
	state nodeState
	// secret is the name of the requester's token, if that is for single use.
	secret string
}

// cached is what is known of a claim without a request to the API server, and the best for it where only a
// request would tell. Whatever it holds is watched, so that a claim which fails by it is judged again when
// that changes.
func (c *controller) cached(r pending.Request, now time.Time) verdict.Facts {
	var f verdict.Facts
	if s, ok := c.state(r.Claim.Node); ok {
		f = s.facts(c.seen.see(s, now))
	}
	f.Newer = c.index.Newer(r)
	if f.Known = c.machines != nil || c.isNode(r.Claim.Node); !f.Known {
		listed, err := c.Listed(r.Claim.Node)
		f.Known = listed || err != nil
	}
	return verdict.Cheap(f)
}

// gather asks everybody concerned, until the claim is known to fail, and judges. All of it is read afresh,
// because a cache could be behind, but for the other requests and other nodes' notes: what is not known yet is
// as good as not made yet.
func (c *controller) gather(
	ctx context.Context, o *certificates.CertificateSigningRequest, r pending.Request,
) (f facts, v verdict.Verdict, err error) {
	claim := *r.Claim
	if f.state, err = c.readState(ctx, claim.Node); err != nil {
		return f, v, err
	}
	if f.state.UID != "" {
		f.Facts = f.state.facts(c.seen.see(f.state, time.Now()))
	}
	if f.Known, err = c.known(ctx, claim.Node); err != nil {
		return f, v, err
	}
	f.Newer = c.index.Newer(r)
	if v = verdict.Judge(claim, verdict.Cheap(f.Facts), c.Policy, time.Now()); v.Action != verdict.Approve {
		return f, v, nil
	}
	if claim.Class == verdict.Token {
		if err := c.askToken(ctx, claim, &f); err != nil {
			return f, v, err
		}
	}
	if f.Access, err = c.access(ctx, o, claim); err != nil {
		return f, v, err
	}
	return f, verdict.Judge(claim, f.Facts, c.Policy, time.Now()), nil
}

func (c *controller) askToken(ctx context.Context, claim verdict.Claim, f *facts) error {
	token, readable, err := c.token(ctx, tokenSecret(claim.TokenID()))
	if err != nil || !readable {
		return err
	}
	f.Token = verdict.ReadToken(token, claim, time.Now())
	f.Token.SpentOn = verdict.SpentOn(token, claim.Node, c.written.notes(c.reported.List()))
	if token != nil && singleUse(token) {
		f.secret = token.Name
	}
	return nil
}

// access asks the API server whether the requester holds the right. Groups and extra belong to the
// question: an authoriser may look at either.
func (c *controller) access(ctx context.Context, o *certificates.CertificateSigningRequest,
	claim verdict.Claim) (bool, error) {
	extra := map[string]authorization.ExtraValue{}
	for k, v := range o.Spec.Extra {
		extra[k] = authorization.ExtraValue(v)
	}
	resource, sub, _ := strings.Cut(claim.Right(), "/")
	answer, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorization.SubjectAccessReview{
		Spec: authorization.SubjectAccessReviewSpec{
			User: o.Spec.Username, UID: o.Spec.UID, Groups: o.Spec.Groups, Extra: extra,
			ResourceAttributes: &authorization.ResourceAttributes{
				Verb: "create", Group: certificates.GroupName, Version: "*", Resource: resource, Subresource: sub,
			},
		},
	}, meta.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("asking whether %s may create %s: %v", claim.User, claim.Right(), err)
	}
	return answer.Status.Allowed, nil
}

func (c *controller) known(ctx context.Context, node string) (bool, error) {
	if listed, err := c.Listed(node); listed || err != nil {
		return listed, err
	}
	_, err := c.client.CoreV1().Nodes().Get(ctx, node, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.provisioned(ctx, node)
	}
	return err == nil, err
}

// state is a node's, as the informer has it.
func (c *controller) state(node string) (nodeState, bool) {
	o, there, _ := c.reported.GetByKey(node) // a map does not fail
	s, ok := o.(*nodeState)
	if !there || !ok {
		return nodeState{}, false
	}
	return *s, true
}

// isNode tells whether there is a Node, as the informer has it.
func (c *controller) isNode(name string) bool {
	_, there, _ := c.nodes.GetByKey(name)
	return there
}
