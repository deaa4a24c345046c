// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

var stateKind = schema.GroupVersionResource{Group: "node-cert-agent.io", Version: "v1alpha1",
	Resource: "nodecertificatestates"}

// nodeState is what of a NodeCertificateState matters here; the zero value is that of a node which never
// reported. Times are strings because the node writes them: one that does not parse counts as absent and
// must not make the object unreadable.
type nodeState struct {
	meta.ObjectMeta `json:"metadata"`
	Spec            notes      `json:"spec"`
	Status          nodeStatus `json:"status"`
}

// nodeStatus is what the agent reports.
type nodeStatus struct {
	State     string `json:"state,omitempty"`
	Heartbeat string `json:"heartbeat,omitempty"`
	Identity  struct {
		PublicKey string `json:"publicKey,omitempty"`
		Issued    string `json:"issued,omitempty"`
		Expires   string `json:"expires,omitempty"`
	} `json:"identity"`
}

// notes are what the approver keeps about a node, and applies as a whole.
type notes struct {
	Bootstrap *bootstrap `json:"bootstrap,omitempty"`
	// KnownSince is when the approver first found the node in the inventory after it admitted it.
	KnownSince string `json:"knownSince,omitempty"`
}

// bootstrap is what the approver notes about the last first certificate of a node, before it approves.
type bootstrap struct {
	Request   string `json:"request,omitempty"`
	Requester string `json:"requester,omitempty"`
	PublicKey string `json:"publicKey,omitempty"`
	Approved  string `json:"approved,omitempty"`
	Secret    string `json:"secret,omitempty"`
}

func (c *controller) readState(ctx context.Context, node string) (s nodeState, err error) {
	u, err := c.states.Get(ctx, node, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nodeState{}, nil
	}
	if err != nil {
		return nodeState{}, fmt.Errorf("reading the state of %s: %v", node, err)
	}
	return readNodeState(u)
}

func readNodeState(u *unstructured.Unstructured) (s nodeState, err error) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s); err != nil {
		return nodeState{}, fmt.Errorf("reading the state of %s: %v", u.GetName(), err)
	}
	return s, nil
}

// identity is nil for a node that has not reported yet; seen is when it last did.
func (s nodeState) identity(seen time.Time) *verdict.Identity {
	if s.Status.State == "" && s.Status.Identity.PublicKey == "" {
		return nil
	}
	return &verdict.Identity{Issued: when(s.Status.Identity.Issued), Expires: when(s.Status.Identity.Expires),
		PublicKey: s.Status.Identity.PublicKey, Heartbeat: seen}
}

// facts are what the state says for a verdict.
func (s nodeState) facts(seen time.Time) verdict.Facts {
	f := verdict.Facts{Identity: s.identity(seen), Allowed: s.Annotations[verdict.AllowAnnotation],
		KnownSince: when(s.Spec.KnownSince)}
	if b := s.Spec.Bootstrap; b != nil {
		f.Admitted, f.Last = when(b.Approved), b.Request
	}
	return f
}

func when(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// recordApproval writes down which key is about to be approved for a node and what it costs, so that the token is
// found again after a restart of the approver. It comes before the approval; a note without one is
// harmless, because no node will report that key. A token that the note before this names was used, and goes.
func (c *controller) recordApproval(ctx context.Context, claim verdict.Claim, f facts) error {
	if b := f.state.Spec.Bootstrap; b != nil && b.Secret != f.secret {
		if _, err := c.deleteToken(ctx, f.state); err != nil {
			return err
		}
	}
	now := time.Now().UTC().Format(time.RFC3339)
	n := notes{Bootstrap: &bootstrap{Request: claim.Request, Requester: claim.User, PublicKey: claim.PublicKey,
		Approved: now, Secret: f.secret}}
	if f.Known {
		n.KnownSince = now
	}
	return c.writeNotes(ctx, claim.Node, f.state.UID, n)
}

// writeNotes makes the object if there was none when it was read, which is without a UID. One that was deleted since
// stays away.
func (c *controller) writeNotes(ctx context.Context, node string, uid types.UID, n notes) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&n)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	u.SetGroupVersionKind(stateKind.GroupVersion().WithKind("NodeCertificateState"))
	u.SetName(node)
	u.SetUID(uid)
	if _, err := c.states.Apply(ctx, node, u, meta.ApplyOptions{FieldManager: Name, Force: true}); err != nil {
		return fmt.Errorf("noting what is known of %s: %v", node, err)
	}
	c.written.put(node, n)
	return nil
}
