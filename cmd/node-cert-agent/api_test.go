// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
)

// marker is in every token, and must be in nothing that the agent prints or writes.
const marker = "geheim-1f7a"

// api is an API server that has the one object. A watch begins with it and goes on with its changes.
type api struct {
	*httptest.Server
	mu      sync.Mutex
	version int
	spec    map[string]any
	changed chan struct{} // closed at the next change
	refuse  int           // instead of answering, if not 0
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{version: 100, changed: make(chan struct{})}
	a.Server = httptest.NewUnstartedServer(a)
	a.EnableHTTP2 = true
	a.StartTLS()
	t.Cleanup(func() {
		a.CloseClientConnections() // or Close would wait for the watches
		a.Close()
	})
	return a
}

// publish changes fields of the object's spec and returns its new version.
func (a *api) publish(fields map[string]any) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := map[string]any{}
	for _, m := range []map[string]any{a.spec, fields} {
		for k, v := range m {
			next[k] = v
		}
	}
	a.spec = next
	a.version++
	close(a.changed)
	a.changed = make(chan struct{})
	return strconv.Itoa(a.version)
}

// object is the object as JSON, nil before the first publish, and a channel for its next change.
func (a *api) object() (object []byte, changed chan struct{}, refuse int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spec != nil {
		object, _ = json.Marshal(map[string]any{"apiVersion": "node-cert-agent.io/v1alpha1", "kind": "ControllerConfig",
			"metadata": map[string]any{"name": "machine-config-controller", "uid": "0b0e", "resourceVersion": strconv.Itoa(a.version)}, "spec": a.spec})
	}
	return object, a.changed, a.refuse
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	object, changed, refuse := a.object()
	switch {
	case refuse != 0:
		http.Error(w, fmt.Sprintf(`{"kind":"Status","status":"Failure","message":"not you","code":%d}`, refuse), refuse)
		return
	case r.Header.Get("Authorization") != "Bearer "+marker:
		http.Error(w, `{"kind":"Status","status":"Failure","message":"who?","code":401}`, http.StatusUnauthorized)
		return
	case r.URL.Path != "/apis/node-cert-agent.io/v1alpha1/controllerconfigs" || r.URL.Query().Get("watch") != "true":
		http.NotFound(w, r)
		return
	}
	for kind := "ADDED"; ; kind = "MODIFIED" {
		if object != nil {
			fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, object)
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		object, changed, _ = a.object()
	}
}

// kubeconfig is one for this server.
func (a *api) kubeconfig() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, a.URL, base64.StdEncoding.EncodeToString(ca), marker)
}

// save replaces a file by rename, as whoever maintains a kubeconfig or a fragment does.
func save(t *testing.T, file, content string) {
	t.Helper()
	err := os.WriteFile(file+".new", []byte(content), 0o600)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		t.Fatal(err)
	}
}
