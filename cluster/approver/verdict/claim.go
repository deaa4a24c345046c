// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"time"

	certificates "k8s.io/api/certificates/v1"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
)

// Class is the kind of requester.
type Class int

// The classes. Other is anybody whose name says nothing about a node, such as a person.
const (
	Other Class = iota
	// Agent is the node's own agent, which renews.
	Agent
	// Token is a bootstrap token.
	Token
	// Kubelet is the node's own kubelet.
	Kubelet
	// ServiceAccount is the token of a ServiceAccount.
	ServiceAccount
)

// How Kubernetes names requesters: bootstrap tokens, kubelets, ServiceAccounts, and the node that a
// ServiceAccount's token was bound to when it was requested.
const (
	tokenPrefix   = "system:bootstrap:"
	bootstrappers = "system:bootstrappers"
	kubeletPrefix = "system:node:"
	accountPrefix = "system:serviceaccount:"
	nodeNameExtra = "authentication.kubernetes.io/node-name"
)

// maxAge is when Kubernetes removes a pending request.
const maxAge = 24 * time.Hour

// Claim is a request of good form: who asks for which node's identity.
type Claim struct {
	// Request is the name of the object, Node the node whose identity is asked for.
	Request, Node string
	// User is the requester.
	User  string
	Class Class
	// Bound is set if the credential is good for this node only.
	Bound bool
	// PublicKey is the SHA-256 of the SubjectPublicKeyInfo, in lower-case hexadecimal.
	PublicKey string
	// Made is when the object was made, by the API server's clock.
	Made time.Time
	// tokenGroups are the groups that the requester's bootstrap token had beside system:bootstrappers.
	tokenGroups []string
}

// Right is the virtual subresource that the requester needs the right to create.
func (c Claim) Right() string {
	if c.Class == Agent {
		return "certificatesigningrequests/nodecertrenew"
	}
	return "certificatesigningrequests/nodecertbootstrap"
}

// TokenID is the id of the bootstrap token, or "".
func (c Claim) TokenID() string {
	if c.Class != Token {
		return ""
	}
	return strings.TrimPrefix(c.User, tokenPrefix)
}

// NodeGroup is the extra group that binds a bootstrap token to one node. Such groups hold no dots, so it
// is the SHA-256 of the node's name: printf %s NODE | sha256sum.
func NodeGroup(node string) string {
	sum := sha256.Sum256([]byte(node))
	return csr.BootstrapGroup + ":" + hex.EncodeToString(sum[:])
}

// Read makes the checks that need nothing but the object. It returns a claim for Judge, or nil and the
// verdict.
func Read(o *certificates.CertificateSigningRequest, p Policy, now time.Time) (*Claim, Verdict) {
	switch {
	case o.Spec.SignerName != csr.Signer:
		return nil, Verdict{Check: Ours, Fact: "another signer"}
	case decided(o):
		return nil, Verdict{Check: Ours, Fact: "decided already"}
	case !borrows(o) && !claimsUs(o.Spec.Request):
		return nil, Verdict{Check: Ours, Fact: "another subject"}
	}
	if v, old := aged(o.CreationTimestamp.Time, now); old {
		return nil, v
	}
	if !claimsUs(o.Spec.Request) {
		return nil, foreign(o.Spec.Request)
	}
	r, err := csr.Check(o.Spec.Request)
	if err != nil {
		return nil, deny(Form, "%s", fact(err))
	}
	if v, bad := checkSpec(o, r, p); bad {
		return nil, v
	}
	sum := sha256.Sum256(r.SPKI)
	c := &Claim{Request: o.Name, Node: r.Node, User: o.Spec.Username, PublicKey: hex.EncodeToString(sum[:]),
		Made: o.CreationTimestamp.Time}
	if v, bad := c.classify(o.Spec); bad {
		return nil, v
	}
	return c, Verdict{}
}

func decided(o *certificates.CertificateSigningRequest) bool {
	return len(o.Status.Certificate) > 0 || slices.ContainsFunc(o.Status.Conditions,
		func(c certificates.CertificateSigningRequestCondition) bool {
			return c.Type == certificates.CertificateApproved || c.Type == certificates.CertificateDenied ||
				c.Type == certificates.CertificateFailed
		})
}

func aged(made, now time.Time) (Verdict, bool) {
	if now.Before(made.Add(maxAge)) {
		return Verdict{}, false
	}
	return pending(Age, time.Time{}, "made at %s, more than %v ago", stamp(made), maxAge), true
}

// borrows is true if the request has a name like ours, or comes from one of our groups, whatever its subject.
// Who approves requests by hand sees the name and not the subject.
func borrows(o *certificates.CertificateSigningRequest) bool {
	return csr.Named(o.Name) || slices.ContainsFunc(o.Spec.Groups, func(g string) bool {
		return g == csr.Group || g == csr.BootstrapGroup || strings.HasPrefix(g, csr.BootstrapGroup+":")
	})
}

// maxRequest is more than any request of ours; nothing larger is parsed to see whose it is.
const maxRequest = 16 << 10

// claimsUs is true if the subject holds our user prefix or our group, however wrong the rest. Such requests
// are ours to deny; anybody may use the same signer.
func claimsUs(request []byte) bool {
	c := parse(request)
	return c != nil && slices.ContainsFunc(c.Subject.Names, func(n pkix.AttributeTypeAndValue) bool {
		value, _ := n.Value.(string)
		return value == csr.Group || strings.HasPrefix(value, csr.UserPrefix)
	})
}

// parse is nil for what is no PKCS#10 in PEM, or too large for one of ours.
func parse(request []byte) *x509.CertificateRequest {
	if len(request) > maxRequest {
		return nil
	}
	block, _ := pem.Decode(request)
	if block == nil {
		return nil
	}
	c, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil
	}
	return c
}

// foreign is why a request that only looks like ours can never become right.
func foreign(request []byte) Verdict {
	if c := parse(request); c != nil {
		return deny(Form, "it has a name like ours or comes from one of our groups, and asks for the subject %.256q",
			c.Subject.String())
	}
	_, err := csr.Check(request)
	return deny(Form, "%s", fact(err))
}

// fact is a violation without the words that Form says already.
func fact(err error) string {
	if v, ok := errors.AsType[*csr.Violation](err); ok {
		return string(v.Rule) + ": " + v.Fact
	}
	return err.Error()
}

func checkSpec(o *certificates.CertificateSigningRequest, r csr.Request, p Policy) (Verdict, bool) {
	var usages []string
	for _, u := range o.Spec.Usages {
		usages = append(usages, string(u))
	}
	if !slices.Equal(slices.Sorted(slices.Values(usages)), slices.Sorted(slices.Values(csr.Usages()))) {
		return deny(Usages, "%.200q, want %q", usages, csr.Usages()), true
	}
	if o.Spec.ExpirationSeconds == nil {
		return deny(Lifetime, "expirationSeconds is not set"), true
	}
	asked := time.Duration(*o.Spec.ExpirationSeconds) * time.Second
	if asked <= 0 || asked > p.MaxLifetime {
		return deny(Lifetime, "%v, allowed are %v", asked, p.MaxLifetime), true
	}
	if want := csr.Name(r, o.Spec.SignerName, usages, *o.Spec.ExpirationSeconds); o.Name != want {
		return deny(Name, "%.128q is not the digest of the request, which is %s", o.Name, want), true
	}
	return Verdict{}, false
}

// classify says who asks, and refuses whoever is known to be another node. spec.username and what is
// beside it are set by the API server, not by the requester.
func (c *Claim) classify(s certificates.CertificateSigningRequestSpec) (Verdict, bool) {
	other := func(what, node string) (Verdict, bool) {
		return deny(Requester, "%s %.128q asks for %s", what, node, c.Node), true
	}
	switch {
	case strings.HasPrefix(c.User, csr.UserPrefix):
		if c.User != csr.User(c.Node) {
			return other("the agent of", strings.TrimPrefix(c.User, csr.UserPrefix))
		}
		if !slices.Contains(s.Groups, csr.Group) {
			return pending(Requester, time.Time{}, "%s is not in the group %s", quoted(c.User), csr.Group), true
		}
		c.Class, c.Bound = Agent, true
	case strings.HasPrefix(c.User, tokenPrefix):
		c.Class = Token
		c.tokenGroups = slices.DeleteFunc(slices.Clone(s.Groups), func(g string) bool {
			return !strings.HasPrefix(g, bootstrappers+":")
		})
		bound := slices.ContainsFunc(s.Groups, func(g string) bool { return strings.HasPrefix(g, csr.BootstrapGroup+":") })
		if c.Bound = slices.Contains(s.Groups, NodeGroup(c.Node)); bound && !c.Bound {
			return deny(Requester, "the bootstrap token %.16q is bound to another node than %s", c.TokenID(), c.Node), true
		}
	case strings.HasPrefix(c.User, kubeletPrefix):
		if c.User != kubeletPrefix+c.Node {
			return other("the kubelet of", strings.TrimPrefix(c.User, kubeletPrefix))
		}
		c.Class, c.Bound = Kubelet, true
	case strings.HasPrefix(c.User, accountPrefix):
		c.Class = ServiceAccount
		for _, node := range s.Extra[nodeNameExtra] {
			if node != c.Node {
				return other("a ServiceAccount's token bound to", node)
			}
			c.Bound = true
		}
	}
	return Verdict{}, false
}
