// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	certificates "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/approver/verdict"
)

// lookAgain is when a request that is left is judged again without an event: nobody tells us that a
// node was added or a right granted.
const lookAgain = time.Minute

// item is one thing to look at: a request, or the state of a node.
type item struct {
	kind kind
	name string
}

type kind byte

const (
	request kind = iota
	state
)

// controller is the work of one term as the leader. One goroutine does all of it.
type controller struct {
	Options
	client kubernetes.Interface
	states dynamic.ResourceInterface
	// machines is nil unless they count.
	machines dynamic.ResourceInterface
	events   record.EventRecorder
	queue    workqueue.TypedRateLimitingInterface[item]

	factory  informers.SharedInformerFactory
	reported dynamicinformer.DynamicSharedInformerFactory
	requests listers.CertificateSigningRequestLister
	// said is the last event of each pending request, so that none is repeated every minute.
	said map[string]string
}

func newController(client kubernetes.Interface, states dynamic.Interface, events record.EventRecorder, o Options) *controller {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(l *meta.ListOptions) {
		l.FieldSelector = fields.OneTermEqualSelector("spec.signerName", csr.Signer).String()
	}))
	c := &controller{
		Options: o, client: client, states: states.Resource(stateKind), events: events,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](
			100*time.Millisecond, lookAgain)),
		factory: factory, reported: dynamicinformer.NewDynamicSharedInformerFactory(states, 0),
		requests: factory.Certificates().V1().CertificateSigningRequests().Lister(),
		said:     map[string]string{},
	}
	if o.Machines {
		c.machines = states.Resource(machineKind).Namespace(machineNamespace)
	}
	return c
}

// run works until ctx ends, which is when this replica no longer leads.
func (c *controller) run(ctx context.Context) {
	requests := c.factory.Certificates().V1().CertificateSigningRequests().Informer()
	states := c.reported.ForResource(stateKind).Informer()
	ready := []cache.InformerSynced{c.watch(requests, func(name string) { c.queue.Add(item{request, name}) }), c.watch(states, c.stateChanged)}
	c.factory.Start(ctx.Done())
	c.reported.Start(ctx.Done())
	defer c.reported.Shutdown()
	defer c.factory.Shutdown()
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	if !cache.WaitForCacheSync(ctx.Done(), ready...) {
		return
	}
	for c.next(ctx) {
	}
}

// watch calls changed with the name of each object that is added, changed or removed.
func (c *controller) watch(i cache.SharedIndexInformer, changed func(name string)) cache.InformerSynced {
	call := func(o any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			changed(name)
		}
	}
	registration, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: call, UpdateFunc: func(_, o any) { call(o) }, DeleteFunc: call})
	if err != nil {
		// Only an informer that has been stopped refuses, and these are new.
		c.Log.Error("cannot watch", zap.Error(err))
		return func() bool { return false }
	}
	return registration.HasSynced
}

// stateChanged looks at the node and at every request that was left, for one of them may be the node's:
// the annotation that allows it has come, or the certificate in its way has expired.
func (c *controller) stateChanged(name string) {
	c.queue.Add(item{state, name})
	all, err := c.requests.List(labels.Everything())
	if err != nil {
		return // the lister is a map; there is nothing to fail
	}
	for _, o := range all {
		if claim, _ := verdict.Read(o, c.Policy, time.Now()); claim != nil && claim.Node == name {
			c.queue.Add(item{request, o.Name})
		}
	}
}

// next handles one item; it is false when the queue is shut down. What fails is tried again, later each
// time but within lookAgain.
func (c *controller) next(ctx context.Context) bool {
	i, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(i)
	c.Health.begin()
	again, err := c.handle(ctx, i)
	c.Health.end(len(c.said), err)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.Log.Warn("trying again", zap.String("object", i.name), zap.Error(err))
		c.queue.AddRateLimited(i)
	default:
		c.queue.Forget(i)
		if again > 0 {
			c.queue.AddAfter(i, again)
		}
	}
	return true
}

func (c *controller) handle(ctx context.Context, i item) (again time.Duration, err error) {
	if i.kind == state {
		return 0, c.spend(ctx, i.name)
	}
	o, err := c.requests.Get(i.name)
	if apierrors.IsNotFound(err) {
		delete(c.said, i.name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	claim, v := verdict.Read(o, c.Policy, time.Now())
	if claim == nil {
		return c.carryOut(ctx, o, v)
	}
	f, err := c.gather(ctx, o, *claim)
	if err != nil {
		return 0, fmt.Errorf("judging the request of %s: %v", claim.Node, err)
	}
	v = verdict.Judge(*claim, f.Facts, c.Policy, time.Now())
	if v.Word == verdict.Approve && claim.Class != verdict.Agent {
		if err := c.note(ctx, *claim, f); err != nil {
			return 0, err
		}
	}
	return c.carryOut(ctx, o, v)
}

// carryOut does what the verdict says.
func (c *controller) carryOut(ctx context.Context, o *certificates.CertificateSigningRequest, v verdict.Verdict) (again time.Duration, err error) {
	switch v.Word {
	case verdict.Approve:
		return 0, c.decide(ctx, o, certificates.CertificateApproved, v)
	case verdict.Deny:
		return 0, c.decide(ctx, o, certificates.CertificateDenied, v)
	case verdict.Leave:
		if c.said[o.Name] != v.Message() {
			c.said[o.Name] = v.Message()
			c.Health.judged(v)
			c.tell(o, "NodeCertificatePending", v)
		}
		if v.Check == verdict.Age {
			return 0, nil
		}
		again = lookAgain
		if wait := time.Until(v.Again); !v.Again.IsZero() && wait < again {
			again = max(wait, time.Second)
		}
	case verdict.Ignore:
		delete(c.said, o.Name)
	}
	return again, nil
}
