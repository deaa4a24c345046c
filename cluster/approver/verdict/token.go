// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
)

// TokenFacts are what is known of the bootstrap token that asks. The zero value is what is known where the approver
// may not read tokens.
type TokenFacts struct {
	// Created is when it was made, zero if that is unknown.
	Created time.Time
	// Withdrawn is why it is no longer good, or empty.
	Withdrawn string
	// SpentOn is the other node that a token for single use was spent on, or empty.
	SpentOn string
}

// Note is what the approver wrote of a node's last first certificate.
type Note struct {
	// Node is the node, Secret the name of the token for single use that it cost, or empty.
	Node, Secret string
	// Approved is when, zero if that is not readable.
	Approved time.Time
}

// SingleUseLabel on a bootstrap token, with the value true, is the administrator's word that it is for one
// node, once.
const SingleUseLabel = "node-cert-agent.io/single-use"

// clockSkew is how far the clocks of two API servers may be apart.
const clockSkew = time.Minute

// ReadToken says what the Secret of a claim's token says of it; s is nil if there is none. Kubernetes itself
// asks all of this when a token authenticates: it is asked again because a request may wait for a day, and
// whoever withdraws a token means its requests, too. A token that was made anew under the same id is not the
// one that asked.
func ReadToken(s *core.Secret, c Claim, now time.Time) TokenFacts {
	if s == nil {
		return TokenFacts{Withdrawn: "is gone"}
	}
	t := TokenFacts{Created: s.CreationTimestamp.Time}
	extra := strings.Split(string(s.Data["auth-extra-groups"]), ",")
	switch end := s.Data["expiration"]; {
	case s.Type != core.SecretTypeBootstrapToken || string(s.Data["token-id"]) != c.TokenID():
		t.Withdrawn = "is not in its Secret any more"
	case s.DeletionTimestamp != nil:
		t.Withdrawn = "is being deleted"
	case string(s.Data["usage-bootstrap-authentication"]) != "true":
		t.Withdrawn = "is disabled"
	case len(end) > 0 && !now.Before(end3339(string(end))):
		t.Withdrawn = "has expired"
	case t.Created.After(c.Made.Add(clockSkew)):
		t.Withdrawn = "was made after the request"
	}
	for _, g := range c.tokenGroups {
		if t.Withdrawn == "" && !slices.Contains(extra, g) {
			t.Withdrawn = fmt.Sprintf("is no longer in the group %.128q", g)
		}
	}
	return t
}

// end3339 is long ago for what cannot be read, as it is to Kubernetes.
func end3339(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// SpentOn is the node other than this on which the notes say that a token was spent, or empty. A note that is
// older than the token is of an earlier one of its name.
func SpentOn(s *core.Secret, node string, notes iter.Seq[Note]) string {
	if s == nil || s.Labels[SingleUseLabel] != "true" {
		return ""
	}
	for n := range notes {
		older := !n.Approved.IsZero() && s.CreationTimestamp.After(n.Approved)
		if n.Secret == s.Name && n.Node != node && !older {
			return n.Node
		}
	}
	return ""
}
