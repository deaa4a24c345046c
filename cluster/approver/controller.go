// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	certificates "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/pending"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// A pending request is judged again without an event, because nobody tells us that a right was granted or
// the list of nodes changed: first after a minute, and then later each time.
const (
	requeueAfter = time.Minute
	requeueMax   = 10 * time.Minute
	roundLength  = time.Minute
)

// share is how many requests of one requester may be asked about in vain, and how many may be told of, in a
// round. What is approved does not count: a fleet that boots with one token is not held up.
const share = 20

// crowdedEvery is how often it is said that a requester has used up its share.
const crowdedEvery = 10 * time.Minute

// slow is more than the lists of a large cluster take.
const slow = 30 * time.Second

// finish is how long what is in hand may take once the process is to end: less than what the manager waits, and
// than what the kubelet does.
const finish = 20 * time.Second

// controller is the work of one term as the leader. One goroutine judges and writes; those of the informers
// keep index and queue.
type controller struct {
	Options
	client kubernetes.Interface
	states dynamic.ResourceInterface
	// machines is nil unless they count.
	machines dynamic.ResourceInterface
	events   record.EventRecorder
	metrics  *metrics
	progress progress

	start    []func(stop <-chan struct{})
	requests cache.SharedIndexInformer
	reports  cache.SharedIndexInformer
	joined   cache.SharedIndexInformer
	// reported holds *nodeState, nodes that there is a Node.
	reported, nodes cache.Store

	index   *pending.Index
	queue   *pending.Queue
	seen    heartbeats
	written written
	// These bound requests to the API server in vain, events, and events about requesters with too many of them.
	reviewBudget, eventBudget, crowdedBudget *pending.Budget

	// mu holds index and queue together, and guards lastEvent: that of each pending request, so that none is
	// repeated.
	mu        sync.Mutex
	lastEvent map[string]string
}

// clients are the ways to the API server.
type clients struct {
	typed    kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
}

func newController(to clients, events record.EventRecorder, o Options) *controller {
	ofOurSigner := func(l *meta.ListOptions) {
		l.FieldSelector = fields.OneTermEqualSelector("spec.signerName", csr.Signer).String()
	}
	typed := informers.NewSharedInformerFactoryWithOptions(to.typed, 0, informers.WithTweakListOptions(ofOurSigner))
	states := dynamicinformer.NewDynamicSharedInformerFactory(to.dynamic, 0)
	nodes := metadatainformer.NewSharedInformerFactory(to.metadata, 0)
	c := &controller{
		Options: o, client: to.typed, states: to.dynamic.Resource(stateKind), events: events,
		start:    []func(<-chan struct{}){typed.Start, states.Start, nodes.Start},
		requests: typed.Certificates().V1().CertificateSigningRequests().Informer(),
		reports:  states.ForResource(stateKind).Informer(),
		joined:   nodes.ForResource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).Informer(),
		index:    pending.NewIndex(), queue: pending.NewQueue(requeueAfter, requeueMax),
		seen: heartbeats{of: map[string]heartbeat{}}, written: written{of: map[string]notes{}},
		reviewBudget: pending.NewBudget(share, roundLength), eventBudget: pending.NewBudget(share, roundLength),
		crowdedBudget: pending.NewBudget(1, crowdedEvery),
		lastEvent:     map[string]string{},
		progress:      progress{now: time.Now},
	}
	c.metrics = newMetrics(c.index.Len)
	c.reported, c.nodes = c.reports.GetStore(), c.joined.GetStore()
	if o.Machines {
		c.machines = to.dynamic.Resource(machineKind).Namespace(machineNamespace)
	}
	return c
}

// run works until ctx ends, which is when the process is to end. What is in hand then is finished.
func (c *controller) run(ctx context.Context) error {
	ready, err := c.watch()
	if err != nil { // only an informer that has been stopped or started refuses, and these are new
		return fmt.Errorf("watching requests, states and nodes: %v", err)
	}
	for _, start := range c.start {
		start(ctx.Done())
	}
	late := time.AfterFunc(slow, func() {
		c.Log.Warn("still waiting for the lists of requests, states and nodes: " +
			"the rights of the approver may be those of an earlier version")
	})
	synced := cache.WaitForCacheSync(ctx.Done(), ready...)
	late.Stop()
	if !synced {
		return nil
	}
	work, done := outlive(ctx)
	defer done()
	for ctx.Err() == nil {
		if key, ok := c.queue.Next(time.Now()); ok {
			c.handle(work, key)
		} else {
			c.wait(ctx)
		}
	}
	return nil
}

// outlive returns a context that ends when done is called, or finish after ctx.
func outlive(ctx context.Context) (work context.Context, done func()) {
	work, done = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		t := time.AfterFunc(finish, done)
		context.AfterFunc(work, func() { t.Stop() })
	})
	return work, done
}

// watch connects the informers with index and queue.
func (c *controller) watch() (ready []cache.InformerSynced, err error) {
	for _, w := range []struct {
		informer  cache.SharedIndexInformer
		transform cache.TransformFunc
		changed   func(o any)
		gone      func(name string)
	}{
		{c.requests, keepRequest(c.Policy), c.requestChanged, c.requestGone},
		{c.reports, keepState, c.stateChanged, c.stateGone},
		{c.joined, keepNode, func(o any) { c.nodeChanged(o.(meta.Object).GetName()) }, c.nodeChanged},
	} {
		if err := w.informer.SetTransform(w.transform); err != nil {
			return nil, err
		}
		r, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: w.changed, UpdateFunc: func(_, o any) { w.changed(o) },
			DeleteFunc: func(o any) {
				if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
					w.gone(name)
				}
			},
		})
		if err != nil {
			return nil, err
		}
		ready = append(ready, r.HasSynced)
	}
	return ready, nil
}

func (c *controller) requestChanged(o any) {
	k := o.(*keptRequest)
	old, there := c.index.Get(k.Name)
	switch {
	case there && old.UID != k.UID:
		c.forget(k.Name, old.UID)
	case there && k.waits:
		return // nothing of it that counts can change
	}
	if !k.waits {
		c.forget(k.Name, k.UID)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index.Put(k.request)
	c.queue.Add(requestKey(k.Name), k.request.Class(), k.request.Requester, time.Now())
}

func (c *controller) requestGone(name string) {
	if old, there := c.index.Get(name); there {
		c.forget(name, old.UID)
	}
}

// forget drops a request that is gone or decided. Whichever is now its requester's newest for the node is
// judged again.
func (c *controller) forget(name string, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	heir, ok := c.index.Drop(name, uid)
	if !ok {
		return
	}
	c.queue.Drop(requestKey(name))
	delete(c.lastEvent, name)
	if heir != "" {
		c.requeue(heir)
	}
}

// requeue has a request judged now.
func (c *controller) requeue(name string) {
	if r, ok := c.index.Get(name); ok {
		c.queue.Add(requestKey(name), r.Class(), r.Requester, time.Now())
	}
}

// stateChanged looks at the node, and at every request for it: the annotation that allows one has come, or the
// certificate in its way has expired.
func (c *controller) stateChanged(o any) {
	s := o.(*nodeState)
	c.seen.see(*s, time.Now())
	c.written.arrived(s.Name, &s.Spec)
	c.nodeChanged(s.Name)
}

func (c *controller) stateGone(name string) {
	c.seen.forget(name)
	c.written.arrived(name, nil)
	c.nodeChanged(name)
}

func (c *controller) nodeChanged(name string) {
	if s, ok := c.state(name); ok && (spent(s) || c.arrived(s)) {
		c.queue.Add(stateKey(name), pending.First, Name, time.Now())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, request := range c.index.OfNode(name) {
		c.requeue(request)
	}
}

// Keys of the queue.
func requestKey(name string) string { return "request/" + name }
func stateKey(node string) string   { return "state/" + node }

// wait returns when there may be work.
func (c *controller) wait(ctx context.Context) {
	var later <-chan time.Time
	if due := c.queue.Due(); !due.IsZero() {
		timer := time.NewTimer(time.Until(due))
		defer timer.Stop()
		later = timer.C
	}
	select {
	case <-ctx.Done():
	case <-c.queue.Wake():
	case <-later:
	}
}

// handle does one thing. What fails is tried again, later each time but within a minute.
func (c *controller) handle(ctx context.Context, key string) {
	var err error
	c.progress.begin()
	if node, ok := strings.CutPrefix(key, stateKey("")); ok {
		err = c.tend(ctx, node)
	} else if r, ok := c.index.Get(strings.TrimPrefix(key, requestKey(""))); ok {
		err = c.judge(ctx, r)
	}
	c.progress.end()
	if err != nil {
		c.metrics.failures.Inc()
		c.Log.Warn("trying again", zap.String("object", key), zap.Error(err))
		c.queue.Failed(key, time.Now())
	}
}

// judge judges by what is known; if that does not settle it, and the requester has not asked too much, by
// what the API server says.
func (c *controller) judge(ctx context.Context, r pending.Request) error {
	now := time.Now()
	if r.Claim != nil {
		if v := verdict.Judge(*r.Claim, c.cached(r, now), c.Policy, now); v.Action != verdict.Approve {
			c.leavePending(r, v, now)
			return nil
		}
	} else if r.Verdict.Action == verdict.Pending {
		c.leavePending(r, r.Verdict, now)
		return nil
	}
	if free := c.reviewBudget.Free(r.Requester, now); free.After(now) {
		c.crowded(r, now)
		c.queue.Defer(requestKey(r.Name), free)
		return nil
	}
	c.metrics.inquiries.Inc()
	return c.ask(ctx, r)
}

func (c *controller) ask(ctx context.Context, r pending.Request) error {
	o, err := c.client.CertificatesV1().CertificateSigningRequests().Get(ctx, r.Name, meta.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && o.UID != r.UID {
		c.forget(r.Name, r.UID)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the request %s: %v", r.Name, err)
	}
	var f facts
	claim, v := verdict.Read(o, c.Policy, time.Now())
	if claim != nil {
		if f, v, err = c.gather(ctx, o, r); err != nil {
			return fmt.Errorf("judging the request of %s: %v", claim.Node, err)
		}
	}
	if v.Action != verdict.Approve || claim.Class == verdict.Agent {
		c.reviewBudget.Take(r.Requester, time.Now())
	}
	switch v.Action {
	case verdict.Approve:
		return c.approve(ctx, o, *claim, f, v)
	case verdict.Deny:
		return c.decide(ctx, o, certificates.CertificateDenied, v)
	case verdict.Pending:
		c.leavePending(r, v, time.Now())
	default:
		c.forget(r.Name, r.UID)
	}
	return nil
}

// approve notes what has to be known afterwards, and approves.
func (c *controller) approve(
	ctx context.Context, o *certificates.CertificateSigningRequest, claim verdict.Claim, f facts, v verdict.Verdict,
) error {
	if claim.Class != verdict.Agent {
		if err := c.recordApproval(ctx, claim, f); err != nil {
			return err
		}
	} else if f.Known && !f.Admitted.IsZero() && f.KnownSince.IsZero() {
		if err := c.recordKnown(ctx, f.state); err != nil {
			return err
		}
	}
	return c.decide(ctx, o, certificates.CertificateApproved, v)
}
