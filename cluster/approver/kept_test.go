// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

var policy = verdict.Policy{MaxLifetime: 90 * 24 * time.Hour, StaleAfter: 2 * time.Hour}

// report is a node's state as an agent with 15 files writes it.
func report(t testing.TB, node string) *unstructured.Unstructured {
	t.Helper()
	var files []any
	for f := range 15 {
		var certs []any
		for k := range 16 {
			certs = append(certs, fmt.Sprintf("%064x", f*1000+k))
		}
		files = append(files, map[string]any{"field": "imageRegistryBundleData", "name": fmt.Sprint("registry-", f),
			"certificates": certs})
	}
	note := map[string]any{"secret": "bootstrap-token-abcdef", "approved": "2026-11-22T12:00:00Z"}
	b, err := json.Marshal(map[string]any{"apiVersion": "node-cert-agent.io/v1alpha1", "kind": "NodeCertificateState",
		"metadata": map[string]any{"name": node, "uid": "u-" + node, "resourceVersion": "12",
			"annotations":   map[string]any{verdict.AllowAnnotation: "request", "note": strings.Repeat("x", 10000)},
			"managedFields": []any{map[string]any{"manager": strings.Repeat("m", 10000)}}},
		"status": map[string]any{"state": "following", "files": files, "heartbeat": "2026-11-22T12:00:00Z",
			"identity": map[string]any{"publicKey": strings.Repeat("0a", 32), "expires": "2026-12-24T00:00:00Z"}},
		"spec": map[string]any{"bootstrap": note}})
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(b); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestOfAStateWhatDecidesIsKeptAndNothingElse(t *testing.T) {
	kept, err := keepState(report(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	s := kept.(*nodeState)
	b, err := json.Marshal(s)
	if err != nil || len(b) > 700 {
		t.Errorf("%d bytes are kept (%v): %s", len(b), err, b)
	}
	if s.Name != "a" || s.UID != "u-a" || s.Annotations[verdict.AllowAnnotation] != "request" ||
		s.Status.State != "following" || s.Status.Identity.Expires == "" || s.Status.Heartbeat == "" ||
		s.Spec.Bootstrap.Secret != "bootstrap-token-abcdef" {
		t.Errorf("kept is %s", b)
	}
	if again, err := keepState(kept); err != nil || again != kept {
		t.Error("what is kept is not kept as it is")
	}
	strange := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "b"}, "spec": "x"}}
	if kept, err := keepState(strange); err != nil || kept.(*nodeState).Name != "b" {
		t.Errorf("an object that cannot be read stops the watch: %v", err)
	}
}

// made is a request for a node's identity by a bootstrap token.
func made(t testing.TB, node string) *certificates.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := csr.Build(node, key, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := csr.Check(request)
	week := int32(7 * 24 * 3600)
	return &certificates.CertificateSigningRequest{
		ObjectMeta: meta.ObjectMeta{Name: csr.Name(r, csr.Signer, csr.Usages(), week), UID: "u",
			CreationTimestamp: meta.Now(),
			ManagedFields:     []meta.ManagedFieldsEntry{{Manager: strings.Repeat("m", 10000)}}},
		Spec: certificates.CertificateSigningRequestSpec{Request: request, SignerName: csr.Signer, ExpirationSeconds: &week,
			Usages:   []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth},
			Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", csr.BootstrapGroup}},
	}
}

func TestOfARequestItsClaimIsKeptAndNothingElse(t *testing.T) {
	keep := keepRequest(policy)
	kept := func(o *certificates.CertificateSigningRequest) (*keptRequest, string) {
		k, err := keep(o)
		if err != nil {
			t.Fatal(err)
		}
		r := k.(*keptRequest)
		text := fmt.Sprintf("%+v %+v", r, r.request.Claim)
		if len(text) > 2000 || strings.Contains(text, "CERTIFICATE REQUEST") {
			t.Errorf("kept is %.3000s", text)
		}
		return r, text
	}
	o := made(t, "a")
	if k, text := kept(o); !k.waits || k.request.Claim == nil || k.request.Claim.Node != "a" ||
		k.request.Requester != o.Spec.Username {
		t.Errorf("kept is %s", text)
	}
	large := o.DeepCopy()
	large.Spec.Request = make([]byte, 1<<20)
	if k, text := kept(large); !k.waits || k.request.Verdict.Action != verdict.Deny {
		t.Errorf("kept is %s", text)
	}
	for sentence, change := range map[string]func(*certificates.CertificateSigningRequest){
		"decided": func(o *certificates.CertificateSigningRequest) { o.Status.Certificate = make([]byte, 10000) },
		"a stranger's": func(o *certificates.CertificateSigningRequest) {
			o.Name, o.Spec.Username, o.Spec.Groups, o.Spec.Request = "csr-a", "jane", nil, make([]byte, 1<<20)
		},
	} {
		other := o.DeepCopy()
		change(other)
		if k, text := kept(other); k.waits || k.request.Requester != "" {
			t.Errorf("%s: kept is %s", sentence, text)
		}
	}
}

// TestASpentTokenIsKnownBeforeTheInformerHasIt: two nodes may ask in the same second.
func TestASpentTokenIsKnownBeforeTheInformerHasIt(t *testing.T) {
	w := written{of: map[string]notes{}}
	spent := notes{Bootstrap: &bootstrap{Secret: "s", Approved: "2026-11-22T12:00:00Z"}}
	old := &nodeState{ObjectMeta: meta.ObjectMeta{Name: "a"}}
	named := func(states ...any) (out []string) {
		for n := range w.notes(states) {
			out = append(out, n.Node+" "+n.Secret)
		}
		slices.Sort(out)
		return out
	}
	want := func(sentence string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", sentence, got, want)
		}
	}
	w.put("a", spent)
	want("the informer has nothing", named(), "a s")
	want("the informer is behind", named(old), "a s")
	w.arrived("a", &old.Spec)
	want("something older came", named(old), "a s")
	copied := *spent.Bootstrap
	now := &nodeState{ObjectMeta: meta.ObjectMeta{Name: "a"}, Spec: notes{Bootstrap: &copied}}
	w.arrived("a", &now.Spec)
	want("the informer has it", named(now), "a s")
	want("and is asked alone", named())
	w.put("a", spent)
	w.arrived("a", nil)
	want("the state is gone", named())
}
