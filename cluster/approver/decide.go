// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/pending"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// decide sets the condition that ends the matter. If somebody else changed the request meanwhile, the
// API server refuses, and the request is looked at again.
func (c *controller) decide(ctx context.Context, o *certificates.CertificateSigningRequest,
	t certificates.RequestConditionType, v verdict.Verdict) error {
	ending := condition(t, v.Message())
	reason := ending.Reason
	o.Status.Conditions = append(o.Status.Conditions, ending)
	_, err := c.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, o.Name, o,
		meta.UpdateOptions{FieldManager: Name})
	if err != nil {
		return fmt.Errorf("setting the condition %s: %v", t, err)
	}
	c.metrics.judged(v)
	r := pending.Request{Name: o.Name, UID: o.UID, Requester: o.Spec.Username}
	if v.Action == verdict.Approve {
		c.recordEvent(r, core.EventTypeNormal, reason, v.Message())
	} else if now := time.Now(); !c.eventBudget.Free(r.Requester, now).After(now) {
		c.eventBudget.Take(r.Requester, now)
		c.recordEvent(r, core.EventTypeWarning, reason, v.Message())
	} // the condition says it as well
	c.forget(o.Name, o.UID)
	return nil
}

// condition ends the matter of a request.
func condition(t certificates.RequestConditionType,
	message string) certificates.CertificateSigningRequestCondition {
	return certificates.CertificateSigningRequestCondition{Type: t, Status: core.ConditionTrue,
		Reason: "NodeCertificate" + string(t), Message: message, LastUpdateTime: meta.Now()}
}

// leavePending says why a request waits, where that has changed, and has it judged again.
func (c *controller) leavePending(r pending.Request, v verdict.Verdict, now time.Time) {
	c.mu.Lock()
	told := c.lastEvent[r.Name] == v.Message()
	c.mu.Unlock()
	if free := c.eventBudget.Free(r.Requester, now); !told && !free.After(now) {
		c.eventBudget.Take(r.Requester, now)
		c.mu.Lock()
		c.lastEvent[r.Name] = v.Message()
		c.mu.Unlock()
		c.metrics.judged(v)
		c.recordEvent(r, core.EventTypeWarning, "NodeCertificatePending", v.Message())
	} else if !told {
		c.crowded(r, now)
	}
	if r.Claim != nil && v.Check != verdict.Age {
		c.queue.Left(requestKey(r.Name), now, v.Again)
	}
}

// crowded says once in a while that a requester has more requests than are told of one by one.
func (c *controller) crowded(r pending.Request, now time.Time) {
	if c.crowdedBudget.Free(r.Requester, now).After(now) {
		return
	}
	c.crowdedBudget.Take(r.Requester, now)
	c.recordEvent(r, core.EventTypeWarning, "NodeCertificatePending", fmt.Sprintf(
		"%.128q has more requests pending than %d in %v are told of; the others wait without an event",
		r.Requester, share, roundLength))
}

// recordEvent says in an event and in the log what became of a request.
func (c *controller) recordEvent(r pending.Request, severity, reason, message string) {
	o := core.ObjectReference{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest", Name: r.Name,
		UID: r.UID}
	c.events.Event(&o, severity, reason, message)
	c.Log.Info(reason, zap.String("request", r.Name), zap.String("requester", r.Requester), zap.String("message", message))
}
