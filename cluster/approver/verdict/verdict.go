// SPDX-License-Identifier: Apache-2.0

// Package verdict decides whether a CertificateSigningRequest for a node's identity is approved, denied
// or left pending. It is pure: the object, what others say about it, and the time come in; an action and the
// fact behind it come out.
//
// It owns the checks of the approver and their order. It promises that what it approves gives one node
// its own identity and nothing else, that it denies only requests which carry our user prefix or our
// group and can never become right, and that whatever may change (a right, the inventory, a heartbeat)
// leaves the request pending, because a denial cannot be taken back. It accepts any input.
//
// It does not look at names in DNS or at addresses: they fail for reasons that are not the requester's.
//
// Sources: the pages "Certificates and Certificate Signing Requests" and "Authenticating with Bootstrap
// Tokens" of the Kubernetes documentation; package csr for the form of a request.
package verdict

import (
	"fmt"
	"time"

	certificates "k8s.io/api/certificates/v1"
)

// Action is what is to be done with a request.
type Action int

// The actions. Ignore is for what is not ours, or is decided: not even an event is due.
const (
	Ignore Action = iota
	Pending
	Deny
	Approve
)

// String is the action in lower case.
func (a Action) String() string { return [...]string{"ignore", "pending", "deny", "approve"}[a] }

// Check names the check that decided, for events and conditions.
type Check string

// The checks, in the order in which they are made.
const (
	// Ours: our signer; our user prefix or group in the subject, a name like ours, or a requester in one of
	// our groups; undecided.
	Ours Check = "ours"
	// Age: younger than a day, the time after which Kubernetes removes a pending request.
	Age Check = "age"
	// Form: the PKCS#10, as package csr wants it.
	Form Check = "form"
	// Usages: digital signature and client auth, nothing else.
	Usages Check = "usages"
	// Lifetime: expirationSeconds is set and no longer than allowed.
	Lifetime Check = "lifetime"
	// Name: the object's name is the digest of its content.
	Name Check = "name"
	// Requester: nobody asks for a node that it is known not to be.
	Requester Check = "requester"
	// Inventory: the node is known.
	Inventory Check = "inventory"
	// Newest: of several requests of one requester for one node, the last one.
	Newest Check = "newest"
	// Live: no identity in use is taken over, and none that was just granted.
	Live Check = "live identity"
	// Credential: the bootstrap token is still good, and was not spent on another node.
	Credential Check = "token"
	// Access: the requester holds the right to bootstrap or to renew.
	Access Check = "access"
)

// Verdict is the outcome for one request.
type Verdict struct {
	Action
	// Check is the one that decided; for an approval it is empty.
	Check Check
	// Fact is one line for people, without control characters.
	Fact string
	// Again is when a pending request may fare better without anybody doing anything, or zero.
	Again time.Time
}

// Message is check and fact, as events and conditions show them.
func (v Verdict) Message() string {
	if v.Check == "" {
		return v.Fact
	}
	return string(v.Check) + ": " + v.Fact
}

// Policy is what the administrator may choose.
type Policy struct {
	// MaxLifetime is the longest lifetime that may be asked for.
	MaxLifetime time.Duration
	// StaleAfter is how long after its last heartbeat an identity no longer counts as in use.
	StaleAfter time.Duration
}

// Shipped is the policy unless an administrator chooses another.
var Shipped = Policy{MaxLifetime: 90 * 24 * time.Hour, StaleAfter: 2 * time.Hour}

// Facts are what others say about a claim. The zero value is what is known about nobody.
type Facts struct {
	// Access is the answer to the SubjectAccessReview for Claim.Right.
	Access bool
	// Known is set if there is a Node of the name, or the administrator's list holds it: the inventory.
	Known bool
	// Identity is what the node last reported, nil if it never did.
	Identity *Identity
	// Admitted is when the approver last approved a first certificate for the node, or zero, and Last
	// the name of that request.
	Admitted time.Time
	Last     string
	// Newer is the name of an undecided request by the same requester for the same node that was made
	// later, or empty.
	Newer string
	// Token is what is known of the requester's bootstrap token.
	Token TokenFacts
	// KnownSince is when the node was first found to be known after it was admitted, zero if it never was.
	KnownSince time.Time
	// Allowed is the name of a request that an administrator lets replace a live identity.
	Allowed string
}

// Identity is a certificate of a node, by its own report; times may be zero.
type Identity struct {
	Issued, Expires time.Time
	// PublicKey is as in Claim.
	PublicKey string
	// Heartbeat is when the approver last saw that the node had written, or when it began to look.
	Heartbeat time.Time
}

// Judge decides about a claim once the facts are known. What it costs no request to know comes first, so
// that whoever knows the rest may ask for Token and Access only where these would decide: see Cheap.
func Judge(c Claim, f Facts, p Policy, now time.Time) Verdict {
	if v, old := aged(c.Made, now); old {
		return v
	}
	if v, bad := absent(c, f); bad {
		return v
	}
	if c.Class != Agent {
		// An agent that lost its key asks with another; to approve both would give one to nobody knows whom.
		if f.Newer != "" {
			return pending(Newest, time.Time{}, "%s has asked again for %s, by %s", quoted(c.User), c.Node, f.Newer)
		}
		if v, taken := replacesLiveIdentity(c, f, p, now); taken {
			return v
		}
	}
	if c.Class == Token && f.Token.Withdrawn != "" {
		return pending(Credential, time.Time{}, "the bootstrap token %.16q %s", c.TokenID(), f.Token.Withdrawn)
	}
	if c.Class == Token && f.Token.SpentOn != "" {
		return pending(Credential, time.Time{}, "the bootstrap token %.16q is for single use and was spent on %s",
			c.TokenID(), f.Token.SpentOn)
	}
	if !f.Access {
		return pending(Access, time.Time{}, "%s may not create %s.%s", quoted(c.User), c.Right(), certificates.GroupName)
	}
	if c.Class == Agent {
		return Verdict{Action: Approve, Fact: fmt.Sprintf("the agent of %s renews its certificate", c.Node)}
	}
	return Verdict{Action: Approve, Fact: fmt.Sprintf("%s asks for the first certificate of %s", quoted(c.User), c.Node)}
}

// Cheap fills in, at its best for the claim, what only a request to the API server tells. If a claim stays
// pending even so, the request can be saved.
func Cheap(f Facts) Facts {
	f.Access, f.Token = true, TokenFacts{Created: farOff}
	return f
}

// farOff is after any certificate was issued.
var farOff = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// absent tells whether the claim fails because of the inventory. A node that was admitted with a credential of
// its own need not be in it, such as a firewall; but what was in it once and is no longer has left.
func absent(c Claim, f Facts) (Verdict, bool) {
	left := !f.KnownSince.IsZero()
	switch {
	case f.Known:
		return Verdict{}, false
	case left && (c.Class == Agent || c.Class == Kubelet):
		return pending(Inventory, time.Time{},
			"there is no node %s any more, neither in the cluster nor in the list, where it was at %s",
			c.Node, stamp(f.KnownSince)), true
	case c.Class == Agent && f.Admitted.IsZero():
		return pending(Inventory, time.Time{}, "there is no node %s, neither in the cluster nor in the list", c.Node), true
	case c.Class != Agent && !c.Bound:
		return pending(Inventory, time.Time{},
			"there is no node %s, neither in the cluster nor in the list, and the credential is not bound to it", c.Node), true
	}
	return Verdict{}, false
}

// backdate is what the signer of Kubernetes takes off NotBefore.
const backdate = 5 * time.Minute

// grace is how long a node that was granted its first certificate has to report under it, before another
// request may be granted one. Without it two tokens that ask for one new node at the same moment would
// both succeed.
const grace = 10 * time.Minute

// replacesLiveIdentity tells whether the claim would replace an identity in use, and what would help then.
func replacesLiveIdentity(c Claim, f Facts, p Policy, now time.Time) (Verdict, bool) {
	until, fact := inUseUntil(f, p)
	if c.Class == Kubelet || !now.Before(until) || f.Allowed == c.Request {
		return Verdict{}, false
	}
	// A request is signed with its key. Whoever holds the key in use, or the one approved last, takes
	// nothing over: its certificate is no longer believed, or never arrived.
	if f.Last == c.Request || f.Identity != nil && f.Identity.PublicKey == c.PublicKey {
		return Verdict{}, false
	}
	since := f.Admitted
	if f.Identity != nil {
		issued := f.Identity.Issued.Add(backdate)
		if issued.After(f.Identity.Heartbeat) {
			issued = f.Identity.Heartbeat // it was issued before it was reported, whatever the report says
		}
		if issued.After(since) {
			since = issued
		}
	}
	if c.Bound && f.Token.Created.After(since) {
		return Verdict{}, false
	}
	token := "a token for this node made after " + stamp(since)
	if c.Class == Token {
		token += " (the approver reads that with the component single-use)"
	}
	return pending(Live, until, "the identity of %s %s; what helps: %s, the annotation %s=%s on its state object, or to "+
		"wait until %s",
		c.Node, fact, token, AllowAnnotation, c.Request, stamp(until)), true
}

// inUseUntil is until when the node's identity counts as in use, and why. A node that has spoken since it was
// granted a certificate is judged by what it said.
func inUseUntil(f Facts, p Policy) (until time.Time, fact string) {
	i := f.Identity
	if i != nil {
		until, fact = i.Heartbeat.Add(p.StaleAfter), "is in use, last seen "+stamp(i.Heartbeat)
		if !i.Expires.IsZero() && i.Expires.Before(until) {
			until = i.Expires
		}
	}
	if granted := f.Admitted.Add(grace); (i == nil || i.Heartbeat.Before(f.Admitted)) && granted.After(until) {
		until, fact = granted, "was granted at "+stamp(f.Admitted)+" to another request"
	}
	return until, fact
}

// AllowAnnotation on a node's state object names the one request that may replace its live identity.
const AllowAnnotation = "node-cert-agent.io/allow-rebootstrap"

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func pending(c Check, again time.Time, format string, args ...any) Verdict {
	return Verdict{Action: Pending, Check: c, Fact: fmt.Sprintf(format, args...), Again: again}
}

func deny(c Check, format string, args ...any) Verdict {
	return Verdict{Action: Deny, Check: c, Fact: fmt.Sprintf(format, args...)}
}

func quoted(user string) string { return fmt.Sprintf("%.128q", user) }
