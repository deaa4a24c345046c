// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
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

	configMap map[string]any // the data of the second source; nil: there is none
	forbidden string         // a resource that may not be read
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

// publish changes fields of the ControllerConfig's spec and returns its new version.
func (a *api) publish(fields map[string]any) string {
	return a.change(func() {
		next := map[string]any{}
		for _, m := range []map[string]any{a.spec, fields} {
			maps.Copy(next, m)
		}
		a.spec = next
	})
}

// publishConfigMap replaces the data of the second source; nil deletes it.
func (a *api) publishConfigMap(data map[string]any) { a.change(func() { a.configMap = data }) }

func (a *api) change(how func()) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	how()
	a.version++
	close(a.changed)
	a.changed = make(chan struct{})
	return strconv.Itoa(a.version)
}

// object is what is read at path, as JSON; nil if there is none. changed announces the next change of
// anything.
func (a *api) object(path string) (object []byte, changed chan struct{}, refuse int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if refuse = a.refuse; refuse == 0 && a.forbidden != "" && strings.HasSuffix(path, "/"+a.forbidden) {
		refuse = http.StatusForbidden
	}
	meta := map[string]any{"name": "machine-config-controller", "uid": "0b0e", "resourceVersion": strconv.Itoa(a.version)}
	switch {
	case strings.HasSuffix(path, "/configmaps") && a.configMap != nil:
		meta["name"] = "kubeconfig-data"
		if strings.Contains(path, "/kube-public/") {
			meta["name"] = "kube-root-ca.crt"
		}
		object, _ = json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta,
			"data": a.configMap})
	case strings.HasSuffix(path, "/controllerconfigs") && a.spec != nil:
		object, _ = json.Marshal(map[string]any{"apiVersion": "node-cert-agent.io/v1alpha1", "kind": "ControllerConfig",
			"metadata": meta, "spec": a.spec})
	}
	return object, a.changed, refuse
}

func served(path string) bool {
	return slices.Contains([]string{"/apis/node-cert-agent.io/v1alpha1/controllerconfigs",
		"/apis/machineconfiguration.openshift.io/v1/controllerconfigs",
		"/api/v1/namespaces/openshift-machine-config-operator/configmaps",
		"/api/v1/namespaces/kube-public/configmaps"}, path)
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	object, changed, refuse := a.object(r.URL.Path)
	switch {
	case refuse != 0:
		http.Error(w, fmt.Sprintf(`{"kind":"Status","status":"Failure","message":"not you","code":%d}`, refuse), refuse)
		return
	case r.Header.Get("Authorization") != "Bearer "+marker:
		http.Error(w, `{"kind":"Status","status":"Failure","message":"who?","code":401}`, http.StatusUnauthorized)
		return
	case r.Method == http.MethodPost:
		review(w)
		return
	case served(path.Dir(r.URL.Path)):
		a.get(w, r)
		return
	case !served(r.URL.Path) || r.URL.Query().Get("watch") != "true":
		http.NotFound(w, r)
		return
	}
	var last []byte
	for kind := "ADDED"; ; kind = "MODIFIED" {
		switch {
		case object != nil:
			fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, object)
		case last != nil:
			fmt.Fprintf(w, `{"type":"DELETED","object":%s}`+"\n", last)
		}
		last = object
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		object, changed, _ = a.object(r.URL.Path)
	}
}

// review answers who asks, and that he may do what he asks about.
func review(w http.ResponseWriter) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"status":{"allowed":true,"userInfo":{"username":"tester"}}}`)
}

// get reads an object by its name.
func (a *api) get(w http.ResponseWriter, r *http.Request) {
	dir, name := path.Split(r.URL.Path)
	object, _, _ := a.object(path.Clean(dir))
	if object == nil {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"kind":"Status","message":"not found","details":{"name":%q}}`, name)
		return
	}
	_, _ = w.Write(object)
}

// kubeconfig is one for this server.
func (a *api) kubeconfig() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	return string(kubeconfigs.Token(a.URL, ca, marker))
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
