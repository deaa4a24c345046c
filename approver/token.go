// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// spend deletes the token of a node that has reported under the identity which the token got: only then
// is it certain that the certificate arrived.
func (c *controller) spend(ctx context.Context, node string) error {
	s, err := c.readState(ctx, node)
	if err != nil {
		return err
	}
	if b := s.Status.Bootstrap; b == nil || b.PublicKey == "" || b.PublicKey != s.Spec.Identity.PublicKey {
		return nil
	}
	return c.deleteToken(ctx, s)
}

// deleteToken deletes the token that the state's note names, if any, and then the name. A token that was
// made later under the same name, or is no longer labelled for single use, stays.
func (c *controller) deleteToken(ctx context.Context, s nodeState) error {
	b := s.Status.Bootstrap
	if b == nil || b.Secret == "" {
		return nil
	}
	token, err := c.token(ctx, b.Secret)
	if err != nil {
		return err
	}
	if token != nil && singleUse(token) && !token.CreationTimestamp.After(when(b.Approved)) {
		err := c.client.CoreV1().Secrets(meta.NamespaceSystem).Delete(ctx, token.Name, meta.DeleteOptions{Preconditions: meta.NewUIDPreconditions(string(token.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the spent token %s: %v", token.Name, err)
		}
		c.Log.Info("deleted a spent token", zap.String("secret", token.Name), zap.String("node", s.Name))
	}
	spent := *b
	spent.Secret = ""
	return c.writeNote(ctx, s.Name, spent)
}
