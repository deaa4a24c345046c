// SPDX-License-Identifier: Apache-2.0

package publisher

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// object is one object that is watched by its name: the right to watch that one is enough.
type object struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// watches hold one watch of metadata for each object that a field needs, and say which field is to be looked at
// again. What an object holds is read when it is needed, and kept nowhere.
type watches struct {
	client  metadata.Interface
	changed chan event.TypedGenericEvent[plan.Field]

	mu      sync.Mutex
	ctx     context.Context // nil until run
	needed  map[plan.Field][]object
	running map[object]context.CancelFunc
}

func newWatches(c metadata.Interface) *watches {
	return &watches{client: c, changed: make(chan event.TypedGenericEvent[plan.Field]),
		needed: make(map[plan.Field][]object), running: make(map[object]context.CancelFunc)}
}

// fleetPause is the least time between two looks at every field because nodes report. Thousands may do so at once.
const fleetPause = time.Second

// run watches until ctx is done. fleet says that every field is to be looked at again.
func (w *watches) run(ctx context.Context, fleet <-chan struct{}) error {
	w.mu.Lock()
	w.ctx = ctx
	w.arrange()
	w.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-fleet:
			w.tell(ctx, func([]object) bool { return true })
			select {
			case <-ctx.Done():
			case <-time.After(fleetPause):
			}
		}
	}
}

// need says what a field depends on from now on.
func (w *watches) need(f plan.Field, objects []object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.needed[f] = objects
	w.arrange()
}

// arrange starts the watches that are needed and ends the others.
func (w *watches) arrange() {
	if w.ctx == nil {
		return
	}
	wanted := make(map[object]bool)
	for _, objects := range w.needed {
		for _, o := range objects {
			wanted[o] = true
		}
	}
	for o, end := range w.running {
		if !wanted[o] {
			end()
			delete(w.running, o)
		}
	}
	for o := range wanted {
		if w.running[o] == nil {
			ctx, end := context.WithCancel(w.ctx)
			w.running[o] = end
			go w.watch(ctx, o)
		}
	}
}

func (w *watches) watch(ctx context.Context, o object) {
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, o.resource, o.namespace, 0, cache.Indexers{},
		func(l *metav1.ListOptions) {
			l.FieldSelector = fields.OneTermEqualSelector("metadata.name", o.name).String()
		}).Informer()
	seen := func() { w.tell(ctx, func(needed []object) bool { return slices.Contains(needed, o) }) }
	// It fails only for an informer that was stopped.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen() },
		UpdateFunc: func(any, any) { seen() }, DeleteFunc: func(any) { seen() }})
	informer.RunWithContext(ctx)
}

// tell has the fields looked at again whose needs are those.
func (w *watches) tell(ctx context.Context, whose func([]object) bool) {
	w.mu.Lock()
	needed := maps.Clone(w.needed)
	w.mu.Unlock()
	for f, objects := range needed {
		if !whose(objects) {
			continue
		}
		select {
		case w.changed <- event.TypedGenericEvent[plan.Field]{Object: f}:
		case <-ctx.Done():
		}
	}
}
