// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/approver/verdict"
)

// decide sets the condition that ends the matter. If somebody else changed the request meanwhile, the
// API server refuses, and the request is looked at again.
func (c *controller) decide(ctx context.Context, o *certificates.CertificateSigningRequest, t certificates.RequestConditionType, v verdict.Verdict) error {
	o = o.DeepCopy() // the informer's is shared
	reason := "NodeCertificate" + string(t)
	o.Status.Conditions = append(o.Status.Conditions, certificates.CertificateSigningRequestCondition{
		Type: t, Status: core.ConditionTrue, Reason: reason, Message: v.Message(), LastUpdateTime: meta.Now(),
	})
	_, err := c.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, o.Name, o, meta.UpdateOptions{FieldManager: Name})
	if err != nil {
		return fmt.Errorf("setting the condition %s: %v", t, err)
	}
	c.Health.judged(v)
	c.tell(o, reason, v)
	return nil
}

// tell says in an event and in the log what became of a request.
func (c *controller) tell(o *certificates.CertificateSigningRequest, reason string, v verdict.Verdict) {
	severity := core.EventTypeWarning
	if v.Word == verdict.Approve {
		severity = core.EventTypeNormal
	}
	c.events.Event(o, severity, reason, v.Message())
	c.Log.Info(reason, zap.String("request", o.Name), zap.String("requester", o.Spec.Username), zap.String("message", v.Message()))
}
