// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/node-cert-agent/node-cert-agent/approver/verdict"
)

var stateKind = schema.GroupVersionResource{Group: "node-cert-agent.io", Version: "v1alpha1", Resource: "nodecertificatestates"}

// nodeState is what of a NodeCertificateState matters here; the zero value is that of a node which never
// reported. Times are strings because the node writes them: one that does not parse counts as absent and
// must not make the object unreadable.
type nodeState struct {
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Identity struct {
			PublicKey string `json:"publicKey,omitempty"`
			Issued    string `json:"issued,omitempty"`
			Expires   string `json:"expires,omitempty"`
		} `json:"identity"`
	} `json:"spec"`
	Status struct {
		Bootstrap *bootstrap `json:"bootstrap,omitempty"`
	} `json:"status"`
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
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s); err != nil {
		return nodeState{}, fmt.Errorf("reading the state of %s: %v", node, err)
	}
	return s, nil
}

// identity is nil for a node that has not reported yet. When it last did says the API server, in
// managedFields: the node's own clock may be wrong.
func (s nodeState) identity() *verdict.Identity {
	var last time.Time
	for _, m := range s.ManagedFields {
		if m.Time != nil && m.Subresource == "" && m.FieldsV1 != nil && owns(m.FieldsV1.GetRawBytes(), "f:spec") && m.Time.After(last) {
			last = m.Time.Time
		}
	}
	if last.IsZero() {
		return nil
	}
	return &verdict.Identity{Issued: when(s.Spec.Identity.Issued), Expires: when(s.Spec.Identity.Expires),
		PublicKey: s.Spec.Identity.PublicKey, Heartbeat: last}
}

// owns is true if a set of fields, as in managedFields, has the top-level field. It avoids decoding the
// set, which is as large as the object.
func owns(fields []byte, field string) bool {
	d := json.NewDecoder(bytes.NewReader(fields))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil || name == field {
			return err == nil
		}
		var skipped json.RawMessage
		if d.Decode(&skipped) != nil {
			return false
		}
	}
	return false
}

func when(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// note writes down which key is about to be approved for a node and what it costs, so that the token is
// found again after a restart of the approver. It comes before the approval; a note without one is
// harmless, because no node will report that key.
func (c *controller) note(ctx context.Context, claim verdict.Claim, f facts) error {
	if f.state.UID == "" {
		bare := &unstructured.Unstructured{}
		bare.SetGroupVersionKind(stateKind.GroupVersion().WithKind("NodeCertificateState"))
		bare.SetName(claim.Node)
		if _, err := c.states.Create(ctx, bare, meta.CreateOptions{FieldManager: Name}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making the state of %s: %v", claim.Node, err)
		}
	}
	return c.writeNote(ctx, claim.Node, bootstrap{Request: claim.Request, Requester: claim.User, PublicKey: claim.PublicKey,
		Approved: time.Now().UTC().Format(time.RFC3339), Secret: f.secret})
}

func (c *controller) writeNote(ctx context.Context, node string, b bootstrap) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&b)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"bootstrap": fields}}}
	u.SetGroupVersionKind(stateKind.GroupVersion().WithKind("NodeCertificateState"))
	u.SetName(node)
	if _, err := c.states.ApplyStatus(ctx, node, u, meta.ApplyOptions{FieldManager: Name, Force: true}); err != nil {
		return fmt.Errorf("noting the first certificate of %s: %v", node, err)
	}
	return nil
}
