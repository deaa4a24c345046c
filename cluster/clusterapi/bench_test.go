// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/clusterapi/expiry"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

var (
	apiVersion = schema.GroupVersion{Group: group, Version: "v1beta2"}
	authority  = testpki.New("workload", testpki.ECDSA)
	admin      = authority.Client("admin", "system:masters")
)

// bench is the controller on a management cluster in memory, with one workload cluster that answers by HTTPS.
type bench struct {
	*clusterAPI
	t      *testing.T
	events chan string
	server string
	// states are those of the workload cluster, by node. Nobody answers while silent is set.
	states map[string]*v1alpha1.NodeCertificateState
	silent bool
	// texts are what it answers about nodes whose states no agent of ours wrote.
	texts map[string]string
	// denied is what the API server answers to writes.
	denied error
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kinds := meta.NewDefaultRESTMapper([]schema.GroupVersion{apiVersion})
	for _, kind := range []string{"Cluster", "Machine"} {
		scheme.AddKnownTypeWithName(apiVersion.WithKind(kind), &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(apiVersion.WithKind(kind+"List"), &unstructured.UnstructuredList{})
		kinds.Add(apiVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	b := &bench{t: t, states: make(map[string]*v1alpha1.NodeCertificateState)}
	b.server = b.serve()
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(kinds).WithObjects(objects...).
		WithObjects(kubeconfig(b.server)).WithReturnManagedFields().
		WithInterceptorFuncs(interceptor.Funcs{Update: b.update}).Build()
	recorder := events.NewFakeRecorder(1000)
	b.events = recorder.Events
	o := Usual
	o.Log = zap.NewNop()
	b.clusterAPI = &clusterAPI{options: o, reader: c, client: c, now: time.Now, tell: newTeller(recorder, o.Log)}
	return b
}

// update is what writes of Secrets go through.
func (b *bench) update(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
	if _, is := o.(*corev1.Secret); is && b.denied != nil {
		return b.denied
	}
	return c.Update(ctx, o, opts...)
}

// serve answers for the workload cluster's API server.
func (b *bench) serve() string {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := b.states[path.Base(r.URL.Path)]
		switch {
		case b.silent:
			http.Error(w, "away", http.StatusServiceUnavailable)
		case b.texts[path.Base(r.URL.Path)] != "":
			fmt.Fprint(w, b.texts[path.Base(r.URL.Path)])
		case state == nil:
			http.NotFound(w, r)
		default:
			_ = json.NewEncoder(w).Encode(state)
		}
	}))
	clients := x509.NewCertPool()
	clients.AddCert(authority.Cert)
	serving := authority.Issue(x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}).TLS()
	s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{serving}}
	s.StartTLS()
	b.t.Cleanup(s.Close)
	return s.URL
}

func kubeconfig(server string) *corev1.Secret {
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "a", "preferences": {},
		"contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %s}}],
		"users": [{"name": "u", "user": {"client-certificate-data": %s, "client-key-data": %s}}]}`,
		server, quoted(authority.PEM()), quoted(admin.Cert), quoted(admin.Key))
	return stored("c1-kubeconfig", map[string][]byte{"value": []byte(text)})
}

func quoted(b []byte) string {
	text, err := json.Marshal(b)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func stored(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: data}
}

func object(kind, name string, more map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: more}
	u.SetGroupVersionKind(apiVersion.WithKind(kind))
	u.SetNamespace("ns")
	u.SetName(name)
	u.SetUID(types.UID(kind + name))
	u.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-24 * time.Hour)))
	return u
}

func cluster() *unstructured.Unstructured { return object("Cluster", "c1", map[string]any{}) }

// machine is one of the control plane, on the node of the same name.
func machine(name string) *unstructured.Unstructured {
	m := object("Machine", name, map[string]any{"status": map[string]any{"nodeRef": map[string]any{"name": name}}})
	m.SetLabels(map[string]string{ofCluster: "c1", controlPlane: ""})
	return m
}

// reports has the agent of a node say now when the first pair ends that nobody renews.
func (b *bench) reports(node string, end time.Time) {
	at := metav1.Now()
	b.states[node] = &v1alpha1.NodeCertificateState{ObjectMeta: metav1.ObjectMeta{Name: node,
		ManagedFields: []metav1.ManagedFieldsEntry{{Subresource: "status", Time: &at}}},
		Status: v1alpha1.NodeCertificateStateStatus{Heartbeat: at, Renewal: &v1alpha1.StateRenewal{ObservedTime: at,
			UnrenewedNotAfter: metav1.NewTime(end), EarliestNotAfter: metav1.NewTime(end)}}}
}

func (b *bench) reconcile() error {
	_, err := b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "c1"}})
	return err
}

// told are the reasons of the events since the last call.
func (b *bench) told() (out string) {
	for {
		select {
		case e := <-b.events:
			out += strings.Fields(e)[1] + " "
		default:
			return strings.TrimSpace(out)
		}
	}
}

// expect looks once, and holds what a Machine states and what was told against what is wanted.
func (b *bench) expect(name, annotation, told string) {
	b.t.Helper()
	if err := b.reconcile(); err != nil {
		b.t.Errorf("reconcile: %v", err)
	}
	b.has(name, annotation)
	if got := b.told(); got != told {
		b.t.Errorf("told is %q, want %q", got, told)
	}
}

func (b *bench) has(name, annotation string) {
	b.t.Helper()
	if got := b.read("Machine", name).GetAnnotations()[expiry.Annotation]; got != annotation {
		b.t.Errorf("%s states %q, want %q", name, got, annotation)
	}
}

func (b *bench) read(kind, name string) *unstructured.Unstructured {
	b.t.Helper()
	u, err := b.get(b.t.Context(), kind, client.ObjectKey{Namespace: "ns", Name: name})
	if err != nil {
		b.t.Fatal(err)
	}
	return u
}

// annotate is a person with kubectl annotate, or with kubectl edit if the value is empty.
func (b *bench) annotate(name, value string) {
	b.t.Helper()
	u := b.read("Machine", name)
	u.SetAnnotations(map[string]string{expiry.Annotation: value})
	if value == "" {
		u.SetAnnotations(nil)
	}
	if err := b.client.Update(b.t.Context(), u, client.FieldOwner("kubectl-annotate")); err != nil {
		b.t.Fatal(err)
	}
}
