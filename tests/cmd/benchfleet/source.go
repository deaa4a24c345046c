// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

// bundle has the publisher follow a ConfigMap, which it is granted. Nothing is held: a removal is no other change
// than an addition here.
const bundle = `
{apiVersion: v1, kind: Namespace, metadata: {name: trust}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: publisher, namespace: trust},
 rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: publisher, namespace: trust},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: publisher},
 subjects: [{kind: ServiceAccount, name: node-cert-controller, namespace: node-cert-agent}]}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: ca, namespace: trust}}
---
{apiVersion: node-cert-agent.io/v1alpha1, kind: NodeBundle, metadata: {name: bench},
 spec: {field: imageRegistryBundleUserData, registry: "source.example:5000",
  sources: [{configMap: {namespace: trust, name: ca, key: ca.crt}}], removal: {policy: Immediate}}}
`

// published waits for bytes in the ControllerConfig.
type published struct {
	mu   sync.Mutex
	want []byte
	seen chan struct{}
}

// await begins to wait for bundle; the channel is closed when it was seen.
func (p *published) await(bundle []byte) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want, p.seen = []byte(`"`+base64.StdEncoding.EncodeToString(bundle)+`"`), make(chan struct{})
	return p.seen
}

func (p *published) look(event []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.want != nil && bytes.Contains(event, p.want) {
		close(p.seen)
		p.want = nil
	}
}

// fromSource is the time from an accepted change of a source until a watcher has the ControllerConfig that the
// publisher made of it.
func fromSource(ctx context.Context, e *env) error {
	if err := e.plane.Apply(ctx, []byte(bundle)); err != nil {
		return err
	}
	query := url.Values{"watch": {"1"}, "fieldSelector": {"metadata.name=" + controllerconfig.Name},
		"timeoutSeconds": {"7200"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		e.plane.URL()+controllerconfig.Small.Path()+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	events, err := e.admin.Do(req)
	if err != nil {
		return err
	}
	defer events.Body.Close()
	var p published
	go lines(events.Body, p.look)
	stays := e.content.Fresh()
	if _, err := e.publish(ctx, &p, stays); err != nil { // the publisher looks for the source for the first time
		return err
	}
	var took figures.Samples
	for i := range e.options.sources {
		data := stays
		if i%2 == 0 {
			data = slices.Concat(stays, e.content.Fresh())
		}
		pause(ctx, 50*time.Millisecond)
		t, err := e.publish(ctx, &p, data)
		if err != nil {
			return err
		}
		took = append(took, t)
	}
	e.table.Note("source changed -> ControllerConfig updated", "%v", took)
	e.table.Judge("  p95", took.Seconds(.95)*1000, 200, "ms")
	return nil
}

// publish changes the source.
func (e *env) publish(ctx context.Context, p *published, data []byte) (time.Duration, error) {
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"ca.crt": string(data)}})
	if err != nil {
		return 0, err
	}
	seen := p.await(data)
	if _, err = e.ask(ctx, e.admin, http.MethodPatch, "/api/v1/namespaces/trust/configmaps/ca", mergePatch,
		patch); err != nil {
		return 0, err
	}
	accepted := time.Now()
	select {
	case <-seen:
		return time.Since(accepted), nil
	case <-time.After(e.options.limit):
		return 0, fmt.Errorf("a source that changed was not published")
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
