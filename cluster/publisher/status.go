// SPDX-License-Identifier: Apache-2.0

package publisher

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/fleet"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher/merge"
)

// Reasons of the condition Published, beside those of merge.
const (
	duplicate  merge.Reason = "Duplicate"
	conflicted merge.Reason = "Conflict"
	notWritten merge.Reason = "NotWritten"
)

// longest is how many bytes a condition or an event says: an Event takes 1024.
const longest = 1000

func short(s string) string { return s[:min(len(s), longest)] }

// unpublished has a NodeBundle say that the field has not got what it wants.
func (t *turn) unpublished(reason merge.Reason, message string) {
	t.result.Conditions = slices.DeleteFunc(t.result.Conditions,
		func(c metav1.Condition) bool { return c.Type == v1alpha1.Published })
	t.result.Conditions = append(t.result.Conditions, metav1.Condition{Type: v1alpha1.Published,
		Status: metav1.ConditionFalse, Reason: reason, Message: message})
	t.result.Events = nil
	// A write that failed may have been done all the same, and then what is remembered is needed.
	if reason != notWritten || !t.result.Remember {
		t.result.Certificates = t.bundle.Status.Certificates
	}
}

func unpublished(turns []*turn, reason merge.Reason, message string) {
	for _, t := range turns {
		t.unpublished(reason, message)
	}
}

// remember stores why certificates are kept before anything is written that makes it impossible to tell.
func (p *publisher) remember(ctx context.Context, t *turn) error {
	if !t.result.Remember {
		return nil
	}
	next := t.bundle.DeepCopy()
	next.Status.Certificates = t.result.Certificates
	t.stored = t.result.Certificates
	return p.store(ctx, t.bundle.DeepCopy(), next)
}

// report writes the status, if it differs, and records events for what is new in it.
func (p *publisher) report(ctx context.Context, t *turn) error {
	next := t.bundle.DeepCopy()
	s := &next.Status
	s.ObservedGeneration = next.Generation
	for _, c := range t.result.Conditions {
		c.ObservedGeneration, c.Message = next.Generation, short(c.Message)
		meta.SetStatusCondition(&s.Conditions, c)
	}
	s.Certificates = t.result.Certificates
	s.Counts = p.counts(t)
	t.question.report(s)
	old := t.bundle.DeepCopy()
	if t.result.Remember {
		old.Status.Certificates = t.stored
	}
	if err := p.store(ctx, old, next); err != nil {
		return err
	}
	p.tell(t, t.bundle.Status.Conditions, s.Conditions)
	return nil
}

func (p *publisher) store(ctx context.Context, old, next *v1alpha1.NodeBundle) error {
	if equality.Semantic.DeepEqual(old.Status, next.Status) {
		return nil
	}
	if err := p.client.Status().Patch(ctx, next, client.MergeFrom(old)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of NodeBundle %s: %v", old.Name, err)
	}
	return nil
}

func (p *publisher) counts(t *turn) v1alpha1.Counts {
	c := v1alpha1.Counts{Certificates: len(t.result.Certificates)}
	for _, x := range t.result.Certificates {
		if x.KeptSince != nil {
			c.Held++
		}
	}
	if p.options.Fleet != nil && t.ignore != nil && c.Certificates > 0 {
		var all []pki.Fingerprint
		for _, x := range t.result.Certificates {
			all = append(all, merge.Named("sha256:"+x.SHA256)...)
		}
		a := p.options.Fleet.Judge(fleet.Question{Key: t.key, Certificates: all, Ignore: t.ignore})
		c.Nodes = fmt.Sprintf("%d/%d", a.Have, a.All)
	}
	return c
}

// tell records what happened, and each trouble once.
func (p *publisher) tell(t *turn, before, after []metav1.Condition) {
	for _, e := range t.result.Events {
		p.event(t, e.Warning, e.Reason, e.Note)
	}
	for _, c := range after {
		old := meta.FindStatusCondition(before, c.Type)
		if c.Type == v1alpha1.Converged || old != nil && old.Reason == c.Reason && old.Message == c.Message {
			continue
		}
		switch {
		case c.Status == metav1.ConditionFalse:
			p.event(t, true, c.Reason, c.Message)
		case old != nil && old.Status == metav1.ConditionFalse:
			p.event(t, false, c.Type+"Again", c.Message)
		}
	}
}

func (p *publisher) event(t *turn, warning bool, reason, note string) {
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	p.events.Eventf(t.bundle, nil, kind, reason, "Publish", "%s", short(note))
}
