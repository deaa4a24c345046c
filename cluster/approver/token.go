// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// tend does what a node's state asks for: it deletes the token of a node that has reported under the identity
// which the token got, for only then is it certain that the certificate arrived; and it notes that a node which
// was admitted is in the inventory, so that the end of that is noticed.
func (c *controller) tend(ctx context.Context, node string) error {
	if s, ok := c.state(node); !ok || !spent(s) && !c.arrived(s) {
		return nil
	}
	s, err := c.readState(ctx, node)
	if err != nil {
		return err
	}
	if spent(s) {
		if s.Spec, err = c.deleteToken(ctx, s); err != nil {
			return err
		}
	}
	if c.arrived(s) {
		return c.recordKnown(ctx, s)
	}
	return nil
}

// spent is true of a state whose note names a token and the key under which the node reports.
func spent(s nodeState) bool {
	b := s.Spec.Bootstrap
	return b != nil && b.Secret != "" && b.PublicKey != "" && b.PublicKey == s.Status.Identity.PublicKey
}

// arrived is true of a node that was admitted and is in the inventory, as far as that costs no request, and
// this is not noted yet.
func (c *controller) arrived(s nodeState) bool {
	if s.Spec.Bootstrap == nil || s.Spec.KnownSince != "" {
		return false
	}
	listed, err := c.Listed(s.Name)
	return c.isNode(s.Name) || listed && err == nil
}

func (c *controller) recordKnown(ctx context.Context, s nodeState) error {
	s.Spec.KnownSince = time.Now().UTC().Format(time.RFC3339)
	return c.writeNotes(ctx, s.Name, s.UID, s.Spec)
}

// deleteToken deletes the token that the state's note names, if any, and then the name. A token that was
// made later under the same name, or is no longer labelled for single use, stays.
func (c *controller) deleteToken(ctx context.Context, s nodeState) (notes, error) {
	b := s.Spec.Bootstrap
	if b == nil || b.Secret == "" {
		return s.Spec, nil
	}
	token, _, err := c.token(ctx, b.Secret)
	if err != nil {
		return s.Spec, err
	}
	if token != nil && singleUse(token) && token.Type == core.SecretTypeBootstrapToken &&
		!token.CreationTimestamp.After(when(b.Approved)) {
		err := c.client.CoreV1().Secrets(meta.NamespaceSystem).Delete(ctx, token.Name,
			meta.DeleteOptions{Preconditions: meta.NewUIDPreconditions(string(token.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return s.Spec, fmt.Errorf("deleting the spent token %s: %v", token.Name, err)
		}
		c.Log.Info("deleted a spent token", zap.String("secret", token.Name), zap.String("node", s.Name))
	}
	note := *b
	note.Secret = ""
	s.Spec.Bootstrap = &note
	return s.Spec, c.writeNotes(ctx, s.Name, s.UID, s.Spec)
}

// token reads a bootstrap token. It is nil if there is none. Without the component single-use the approver may
// not read any.
func (c *controller) token(ctx context.Context, name string) (s *core.Secret, readable bool, err error) {
	s, err = c.client.CoreV1().Secrets(meta.NamespaceSystem).Get(ctx, name, meta.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil, false, nil
	case apierrors.IsNotFound(err):
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading the Secret %s: %v", name, err)
	}
	return s, true, nil
}

func tokenSecret(id string) string { return "bootstrap-token-" + id }

// singleUse is the administrator's word, and nothing that the token's holder can say.
func singleUse(s *core.Secret) bool { return s.Labels[verdict.SingleUseLabel] == "true" }
