// SPDX-License-Identifier: Apache-2.0

package publisher

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher/merge"
)

// How long to wait where nobody says that something changed: a source that could not be read, nodes that report.
const (
	unreadableAgain = 30 * time.Second
	blockedAgain    = time.Minute
)

// publisher reconciles one field at a time.
type publisher struct {
	options Options
	client  client.Client
	events  events.EventRecorder
	watches *watches
	reader  reader
	now     func() metav1.Time
}

// turn is what one NodeBundle comes to.
type turn struct {
	bundle *v1alpha1.NodeBundle
	key    plan.Key
	ignore labels.Selector
	result merge.Result
	// question is how it stands with asking the nodes.
	question question
	// stored are the certificates of the status after remember.
	stored []v1alpha1.Certificate
}

// Reconcile brings the field of the request's name in line with its NodeBundles.
func (p *publisher) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	field := plan.Field(r.Name)
	bundles, err := p.bundles(ctx, r.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	turns, late := claims(bundles)
	for _, t := range late {
		if err := p.report(ctx, t); err != nil {
			return reconcile.Result{}, err
		}
	}
	if len(turns) == 0 {
		p.watches.need(field, nil)
		return reconcile.Result{}, nil
	}
	is, err := p.controllerConfig(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	has, err := configOf(is, field)
	if err != nil {
		return reconcile.Result{}, err
	}
	turns, over := fitting(has, turns)
	for _, t := range over {
		if err := p.report(ctx, t); err != nil {
			return reconcile.Result{}, err
		}
	}
	objects := []object{{resource: controllerConfigs, name: p.options.ControllerConfig}}
	for _, t := range turns {
		objects = append(objects, p.decide(ctx, t, is.GetUID(), has)...)
	}
	p.watches.need(field, objects)
	return p.carryOut(ctx, is, has, turns)
}

// pageSize is how many NodeBundles are read at a time.
const pageSize = 500

// bundles are the NodeBundles of a field, from the API server itself. What is remembered in their status has to be what
// was stored last: without it a certificate may go that is kept.
func (p *publisher) bundles(ctx context.Context, field string) (out []v1alpha1.NodeBundle, err error) {
	next := client.ListOptions{Limit: pageSize}
	for {
		var page v1alpha1.NodeBundleList
		if err := p.reader.client.List(ctx, &page, &next); err != nil {
			return nil, fmt.Errorf("listing NodeBundles: %v", err)
		}
		for _, b := range page.Items {
			if b.Spec.Field == field {
				out = append(out, b)
			}
		}
		if next.Continue = page.Continue; next.Continue == "" {
			return out, nil
		}
	}
}

// claims gives each key to the oldest NodeBundle that names it. The others are told whose it is. Of two of one
// second it is the one that has published it.
func claims(bundles []v1alpha1.NodeBundle) (first, late []*turn) {
	slices.SortFunc(bundles, func(a, b v1alpha1.NodeBundle) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), publishes(b)-publishes(a),
			strings.Compare(a.Name, b.Name))
	})
	owners := make(map[plan.Key]string)
	for i := range bundles {
		b := &bundles[i]
		if b.DeletionTimestamp != nil {
			continue
		}
		t := &turn{bundle: b, key: plan.Key{Field: plan.Field(b.Spec.Field), Name: watch.RegistryName(b.Spec.Registry)}}
		if owner, taken := owners[t.key]; taken {
			t.unpublished(duplicate, fmt.Sprintf("the older NodeBundle %s publishes this", owner))
			late = append(late, t)
			continue
		}
		owners[t.key] = b.Name
		first = append(first, t)
	}
	return first, late
}

// fitting leaves the youngest NodeBundles out whose registries would be more than a node takes: it would take none.
func fitting(has config, turns []*turn) (fit, over []*turn) {
	entries := len(has.entries)
	for _, t := range turns {
		switch {
		case has.of(t.key.Name) != nil:
		case entries < watch.MaxEntries:
			entries++
		default:
			t.unpublished(merge.Refused, fmt.Sprintf("a node takes no more than %d registries", watch.MaxEntries))
			over = append(over, t)
			continue
		}
		fit = append(fit, t)
	}
	return fit, over
}

// publishes is 1 for a NodeBundle that has published its key, and 0 for others.
func publishes(b v1alpha1.NodeBundle) int {
	if meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.Published) {
		return 1
	}
	return 0
}

func (p *publisher) controllerConfig(ctx context.Context) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ControllerConfig"))
	err := p.reader.client.Get(ctx, client.ObjectKey{Name: p.options.ControllerConfig}, u)
	if apierrors.IsNotFound(err) {
		return &unstructured.Unstructured{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the ControllerConfig: %v", err)
	}
	return u, nil
}

// decide reads the sources of a NodeBundle and merges them. It gives the objects to watch.
func (p *publisher) decide(ctx context.Context, t *turn, uid types.UID, has config) (objects []object) {
	spec := t.bundle.Spec
	in := merge.Input{Key: t.key, Published: has.of(t.key.Name), Known: t.bundle.Status.Certificates,
		Removal: spec.Removal, Replaced: merge.Named(t.bundle.Annotations[merge.Annotation]), Now: p.now().Time,
		Force: merge.ReadForce(t.bundle.Annotations)}
	for i, s := range spec.Sources {
		said, o := p.reader.read(ctx, s, i+1)
		in.Sources = append(in.Sources, said)
		if o != (object{}) {
			objects = append(objects, o)
		}
	}
	t.ignore = labels.Nothing()
	selector, err := metav1.LabelSelectorAsSelector(spec.Removal.IgnoreNodes)
	switch {
	case err != nil:
		in.MayGo = func([]pki.Fingerprint) (bool, string) { return false, "spec.removal.ignoreNodes: " + err.Error() }
	case p.options.Fleet != nil:
		t.ignore = selector
		t.question.sources = versions(t.bundle.Generation, in.Sources)
		in.MayGo = func(left []pki.Fingerprint) (bool, string) { return t.mayGo(p.options.Fleet, uid, left) }
	}
	t.result = merge.Merge(in)
	return objects
}

// carryOut remembers, writes and tells, in this order.
func (p *publisher) carryOut(ctx context.Context, is *unstructured.Unstructured, has config, turns []*turn) (
	reconcile.Result, error) {
	for _, t := range turns {
		if err := p.remember(ctx, t); err != nil {
			return reconcile.Result{}, err
		}
	}
	failed := p.write(ctx, is, has, turns)
	var r reconcile.Result
	for _, t := range turns {
		if err := p.report(ctx, t); err != nil {
			return reconcile.Result{}, err
		}
		if d := p.again(t); d > 0 && (r.RequeueAfter == 0 || d < r.RequeueAfter) {
			r.RequeueAfter = d
		}
	}
	if failed != nil {
		return reconcile.Result{}, failed
	}
	return r, nil
}

// write applies the field if it is to change. What does not succeed is said in the condition of each NodeBundle. An
// error is one that trying again may end.
func (p *publisher) write(ctx context.Context, is *unstructured.Unstructured, has config, turns []*turn) error {
	wanted := has.with(turns)
	asks := asking(turns)
	if len(wanted.entries) == 0 || asks == "" && wanted.equal(has) && owned(is, has.field) {
		return nil
	}
	patch := wanted.patch(p.options.ControllerConfig, is.GetResourceVersion())
	if notes := notes(has.field, asks, turns); len(notes) > 0 {
		patch.SetAnnotations(notes)
	}
	if err := wanted.refusal(patch, p.now().Time); err != nil {
		unpublished(turns, merge.Refused, "no node would take it: "+err.Error())
		return nil
	}
	err := p.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(patch),
		client.FieldOwner(fieldManager(has.field)))
	if err == nil {
		return p.asked(ctx, turns)
	}
	if others := conflict(err); others != "" {
		unpublished(turns, conflicted, "the field belongs to another manager: "+others)
		return nil
	}
	unpublished(turns, notWritten, err.Error())
	return fmt.Errorf("writing the ControllerConfig: %v", err)
}

// again is when to look at a NodeBundle if nothing else happens, or zero.
func (p *publisher) again(t *turn) time.Duration {
	var least time.Duration
	soon := func(d time.Duration) {
		if least == 0 || d < least {
			least = max(d, time.Second)
		}
	}
	if !t.result.Next.IsZero() {
		soon(t.result.Next.Sub(p.now().Time))
	}
	for _, c := range t.result.Conditions {
		switch c.Reason {
		case merge.SourceUnreadable:
			soon(unreadableAgain)
		case merge.RemovalBlocked:
			soon(blockedAgain)
		}
	}
	return least
}
