// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorization "k8s.io/api/authorization/v1"
	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/node-cert-agent/node-cert-agent/approver/verdict"
)

// facts is what was found out about a claim.
type facts struct {
	verdict.Facts
	state nodeState
	// secret is the name of the requester's token, if that is for single use.
	secret string
}

// gather asks everybody concerned. All of it is read afresh, because a cache could be behind, but for the
// other requests: one that is not known yet is as good as one that is not made yet.
func (c *controller) gather(ctx context.Context, o *certificates.CertificateSigningRequest, claim verdict.Claim) (f facts, err error) {
	if f.Access, err = c.access(ctx, o, claim); err != nil {
		return facts{}, err
	}
	if f.Known, err = c.known(ctx, claim.Node); err != nil {
		return facts{}, err
	}
	if f.state, err = c.readState(ctx, claim.Node); err != nil {
		return facts{}, err
	}
	f.Identity, f.Allowed = f.state.identity(), f.state.Annotations[verdict.AllowAnnotation]
	if b := f.state.Status.Bootstrap; b != nil {
		f.Admitted, f.Last = when(b.Approved), b.Request
	}
	if claim.Class != verdict.Agent {
		if f.Newer, err = c.newer(o, claim); err != nil {
			return facts{}, err
		}
	}
	if claim.Class == verdict.Token {
		token, err := c.token(ctx, tokenSecret(claim.TokenID()))
		if err != nil {
			return facts{}, err
		}
		if token != nil {
			f.TokenCreated = token.CreationTimestamp.Time
			if singleUse(token) {
				f.secret = token.Name
			}
		}
	}
	return f, nil
}

// access asks the API server whether the requester holds the right. Groups and extra belong to the
// question: an authoriser may look at either.
func (c *controller) access(ctx context.Context, o *certificates.CertificateSigningRequest, claim verdict.Claim) (bool, error) {
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

// newer is the name of an undecided request that the same requester made later for the same node.
func (c *controller) newer(o *certificates.CertificateSigningRequest, claim verdict.Claim) (string, error) {
	all, err := c.requests.List(labels.Everything())
	if err != nil {
		return "", err
	}
	for _, other := range all {
		if other.Spec.Username != o.Spec.Username || !later(other, o) {
			continue // before anything is parsed: there may be thousands
		}
		if rival, _ := verdict.Read(other, c.Policy, time.Now()); rival != nil && rival.Node == claim.Node {
			return other.Name, nil
		}
	}
	return "", nil
}

// later is true of the younger request. Times of the API have seconds; of two in the same second each
// replica has to choose the same.
func later(a, b *certificates.CertificateSigningRequest) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name > b.Name
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

// token reads a bootstrap token. It is nil if there is none, or if the approver may not read it, as
// without the component single-use.
func (c *controller) token(ctx context.Context, name string) (*core.Secret, error) {
	s, err := c.client.CoreV1().Secrets(meta.NamespaceSystem).Get(ctx, name, meta.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || err == nil && s.Type != core.SecretTypeBootstrapToken {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s: %v", name, err)
	}
	return s, nil
}

func tokenSecret(id string) string { return "bootstrap-token-" + id }

// singleUse is the administrator's word, and nothing that the token's holder can say.
func singleUse(s *core.Secret) bool { return s.Labels["node-cert-agent.io/single-use"] == "true" }
