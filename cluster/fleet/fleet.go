// SPDX-License-Identifier: Apache-2.0

// Package fleet knows which nodes have which certificates: it watches the Nodes and what their agents report, and
// answers questions about that. Whether a certificate may go is decided from its answers; docs/model shows why
// each part of a question is needed.
//
// It promises that a node counts from when it joins until it is deleted, or is named not to; that a node which
// does not answer has nothing; and that before everything was read nobody agrees. It writes nothing.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

// Fleet keeps what is known of the nodes. It may be asked by several goroutines.
type Fleet struct {
	states, nodes cache.SharedIndexInformer
	changed       chan struct{}
}

// New makes a Fleet that asks the API server of config by c. Run makes it work.
func New(config *rest.Config, c *http.Client) (*Fleet, error) {
	states, err := dynamic.NewForConfigAndClient(config, c)
	if err != nil {
		return nil, fmt.Errorf("fleet: %v", err)
	}
	nodes, err := metadata.NewForConfigAndClient(config, c)
	if err != nil {
		return nil, fmt.Errorf("fleet: %v", err)
	}
	f := &Fleet{changed: make(chan struct{}, 1),
		states: dynamicinformer.NewDynamicSharedInformerFactory(states, 0).
			ForResource(v1alpha1.GroupVersion.WithResource("nodecertificatestates")).Informer(),
		nodes: metadatainformer.NewSharedInformerFactory(nodes, 0).
			ForResource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).Informer()}
	if err := errors.Join(f.listen(f.states, new(recent).keepState), f.listen(f.nodes, keepNode)); err != nil {
		return nil, fmt.Errorf("fleet: %v", err)
	}
	return f, nil
}

// Add has the manager keep a Fleet, in the one process that leads.
func Add(mgr manager.Manager) (*Fleet, error) {
	f, err := New(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(manager.RunnableFunc(f.Run)); err != nil {
		return nil, fmt.Errorf("fleet: %v", err)
	}
	return f, nil
}

// listen has an informer keep what counts, and every change told.
func (f *Fleet) listen(informer cache.SharedIndexInformer, keep cache.TransformFunc) error {
	if err := informer.SetTransform(keep); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { f.tell() },
		UpdateFunc: func(any, any) { f.tell() }, DeleteFunc: func(any) { f.tell() }})
	return err
}

func (f *Fleet) tell() {
	select {
	case f.changed <- struct{}{}:
	default: // it will be looked at anyway
	}
}

// Run watches until ctx is done.
func (f *Fleet) Run(ctx context.Context) error {
	go f.nodes.RunWithContext(ctx)
	f.states.RunWithContext(ctx)
	return nil
}

// Changed says that answers may be others now. One goroutine may receive from it.
func (f *Fleet) Changed() <-chan struct{} { return f.changed }

// Nodes are all that are known now, in no order. While not everything has been read, ok is false.
func (f *Fleet) Nodes() (all []Node, ok bool) {
	if !f.nodes.HasSynced() || !f.states.HasSynced() {
		return nil, false
	}
	return join(f.nodes.GetStore().List(), f.states.GetStore().List()), true
}

// Judge answers from what is known now. While not everything has been read, no node counts.
func (f *Fleet) Judge(q Question) Answer {
	all, _ := f.Nodes()
	return q.Judge(all)
}

// Ready waits until everything has been read, and tells whether that was before ctx was done.
func (f *Fleet) Ready(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), f.nodes.HasSynced, f.states.HasSynced)
}
