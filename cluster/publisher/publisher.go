// SPDX-License-Identifier: Apache-2.0

// Package publisher fills the ControllerConfig from NodeBundles: it watches exactly the objects that they
// name, joins what these hold (cluster/publisher/merge), and writes the fields by server-side apply.
//
// It owns one field manager for each field of the ControllerConfig, "node-cert-publisher/FIELD", and writes
// nothing else. It never forces: a field that another manager owns stays as it is, and the NodeBundle says who
// that is. It writes only what differs. The last good content is what the ControllerConfig has; since when a
// certificate is kept, and why, is in the NodeBundle's status, which is written first.
//
// It does not know when every node has a certificate: Fleet says that. Deleting a NodeBundle withdraws
// nothing (docs/decisions/0036-publishing.md).
package publisher

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/fleet"
)

// Options say what the publisher writes, and whom it asks.
type Options struct {
	// ControllerConfig is the name of the object that the nodes watch.
	ControllerConfig string
	// Fleet knows what nodes have. Without it no certificate goes under the policy WhenConverged.
	Fleet Fleet
	// Changed says that the answers of Fleet may be others now. It may be nil.
	Changed <-chan struct{}
}

// Fleet knows what nodes have on disk: see package fleet.
type Fleet interface {
	Judge(fleet.Question) fleet.Answer
}

// name is the controller's, and what field managers and events of it are called.
const name = "node-cert-publisher"

// Add has the manager run the publisher, in the one process that leads. It adds its kinds to the manager's scheme.
func Add(mgr manager.Manager, o Options) error {
	if err := v1alpha1.AddToScheme(mgr.GetScheme()); err != nil {
		return fmt.Errorf("publisher: %v", err)
	}
	objects, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("publisher: %v", err)
	}
	w := newWatches(objects)
	p := &publisher{options: o, client: mgr.GetClient(), events: mgr.GetEventRecorder(name), watches: w,
		reader: reader{client: mgr.GetAPIReader(), kinds: mgr.GetRESTMapper()}, now: metav1.Now}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return w.run(ctx, o.Changed) })); err != nil {
		return fmt.Errorf("publisher: %v", err)
	}
	err = builder.ControllerManagedBy(mgr).Named("publisher").
		Watches(&v1alpha1.NodeBundle{}, handler.EnqueueRequestsFromMapFunc(fieldOf), builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(source.Channel(w.changed, handler.TypedEnqueueRequestsFromMapFunc(request))).
		Complete(p)
	if err != nil {
		return fmt.Errorf("publisher: %v", err)
	}
	return nil
}

// fieldOf has a field reconciled as a whole: two NodeBundles may want the same, and a list is written in one piece.
func fieldOf(ctx context.Context, o client.Object) []reconcile.Request {
	return request(ctx, plan.Field(o.(*v1alpha1.NodeBundle).Spec.Field))
}

func request(_ context.Context, f plan.Field) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: string(f)}}}
}
