// SPDX-License-Identifier: Apache-2.0

// Package clusterapi serves whoever replaces machines with Cluster API. It runs in the management cluster and does two
// things for each Cluster: the Machines of its control plane state the first end of a certificate that nobody on their
// host will renew (cluster/clusterapi/expiry), so that KubeadmControlPlane replaces them in time and not in vain; and
// the pair in the Secret CLUSTER-apiserver-etcd-client is renewed before its end (cluster/clusterapi/etcdclient).
//
// Of a Machine it owns one annotation, with the field manager "node-cert-cluster-api", and forces nothing. Of
// Secrets it reads four by their names for each Cluster, keeps none, and writes that one, at the version that it
// read. It replaces no machine and restarts nothing. Objects that Cluster API counts as paused are left alone, as those
// are that move to another management cluster.
//
// It holds no watch and no cache: ends of certificates are days away, and Secrets of others are not kept in memory.
// What is wrong is told as Events of the Cluster or the Machine. One Cluster that does not answer holds up no other.
//
// Sources: Cluster API v1.14, as quoted in the packages below; docs/decisions/0046-cluster-api.md.
package clusterapi

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/node-cert-agent/node-cert-agent/cluster/clusterapi/etcdclient"
)

// Options say how often and how early. All have to be set.
type Options struct {
	// Every is how often each Cluster is looked at.
	Every time.Duration
	// Timeout bounds what one look asks of one workload cluster.
	Timeout time.Duration
	// StaleAfter is how old the report of a node may be.
	StaleAfter time.Duration
	// Renew says when the pair of the API servers for etcd is due.
	Renew etcdclient.Policy
	// Log is told what no Event can tell.
	Log *zap.Logger
}

// Usual are the Options of the program but for the log.
var Usual = Options{Every: 5 * time.Minute, Timeout: 20 * time.Second, StaleAfter: 3 * time.Hour,
	Renew: etcdclient.Policy{Before: 30 * 24 * time.Hour}}

const (
	// name is what Events and the field manager are called by.
	name = "node-cert-cluster-api"
	// workers is how many Clusters are looked at at once.
	workers = 8
	// firstPause is the pause after a failure; it doubles until Every.
	firstPause = 5 * time.Second
)

// group is Cluster API's.
const group = "cluster.x-k8s.io"

type clusterAPI struct {
	options Options
	// reader asks the API server itself.
	reader client.Reader
	client client.Client
	tell   *teller
	now    func() time.Time
}

// Add has the manager look at the Clusters, in the one process that leads.
func Add(mgr manager.Manager, o Options) error {
	r := &clusterAPI{options: o, reader: mgr.GetAPIReader(), client: mgr.GetClient(), now: time.Now,
		tell: newTeller(mgr.GetEventRecorder(name), o.Log)}
	due := make(chan event.TypedGenericEvent[client.ObjectKey])
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return r.scan(ctx, due) })); err != nil {
		return fmt.Errorf("cluster-api: %v", err)
	}
	err := builder.ControllerManagedBy(mgr).Named("cluster-api").
		WatchesRawSource(source.Channel(due, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, key client.ObjectKey) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: key}}
			}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstPause, o.Every)}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("cluster-api: %v", err)
	}
	return nil
}

// scan has every Cluster looked at, again and again.
func (r *clusterAPI) scan(ctx context.Context, due chan<- event.TypedGenericEvent[client.ObjectKey]) error {
	tick := time.NewTicker(r.options.Every)
	defer tick.Stop()
	for {
		clusters, err := r.list(ctx, "Cluster")
		if err != nil && ctx.Err() == nil {
			r.options.Log.Warn("the Clusters cannot be listed", zap.Error(err))
		}
		for _, c := range clusters {
			select {
			case <-ctx.Done():
				return nil
			case due <- event.TypedGenericEvent[client.ObjectKey]{Object: client.ObjectKeyFromObject(&c)}:
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Reconcile looks at one Cluster. The Secret comes first: a Machine that is replaced gets what is in it.
func (r *clusterAPI) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c, err := r.get(ctx, "Cluster", req.NamespacedName)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading the Cluster: %v", err)
	}
	if err != nil || c.GetDeletionTimestamp() != nil || paused(c) {
		return reconcile.Result{}, nil
	}
	ends, failed := r.renew(ctx, c)
	if err := r.state(ctx, c, ends); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, failed
}

// pageSize is how many objects are read at a time.
const pageSize = 500

// kind gives the version that the API server prefers: which versions there are depends on that of Cluster API.
func (r *clusterAPI) kind(kind string) (schema.GroupVersionKind, error) {
	m, err := r.client.RESTMapper().RESTMapping(schema.GroupKind{Group: group, Kind: kind})
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return m.GroupVersionKind, nil
}

func (r *clusterAPI) get(ctx context.Context, kind string, key client.ObjectKey) (*unstructured.Unstructured, error) {
	gvk, err := r.kind(kind)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, r.reader.Get(ctx, key, u)
}

func (r *clusterAPI) list(ctx context.Context, kind string, options ...client.ListOption) (
	all []unstructured.Unstructured, err error) {
	gvk, err := r.kind(kind)
	if err != nil {
		return nil, err
	}
	next := (&client.ListOptions{Limit: pageSize}).ApplyOptions(options)
	for {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(gvk)
		if err := r.reader.List(ctx, page, next); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if next.Continue = page.GetContinue(); next.Continue == "" {
			return all, nil
		}
	}
}

// paused is Cluster API's word for: to be left alone.
func paused(o *unstructured.Unstructured) bool {
	_, annotated := o.GetAnnotations()["cluster.x-k8s.io/paused"]
	spec, _, _ := unstructured.NestedBool(o.Object, "spec", "paused")
	return annotated || spec
}
