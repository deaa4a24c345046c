// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/kubeconfig"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/objects"
)

// pulled is what becomes of a pull secret on a host without one.
func pulled(t *testing.T, text string) []string {
	t.Helper()
	object, err := json.Marshal(map[string]any{"kind": "ControllerConfig",
		"spec": map[string]any{"internalRegistryPullSecret": []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	specs := []plan.FileSpec{{Field: plan.InternalRegistryPullSecret, Path: "/etc/mco/internal-registry-pull-secret.json",
		Mode: 0o600}}
	p := plan.Compute(plan.Input{Desired: desired(t, object, specs), Policy: plan.Policy{Files: specs}})
	for _, w := range p.Writes {
		if got, want := string(w.Data), strings.TrimSuffix(text, "\n")+"\n"; got != want {
			t.Errorf("%d bytes are written, want %d: what was published and a final newline", len(got), len(want))
		}
	}
	return orNothing(append(written(p), refused(p)...))
}

func TestEveryPullSecretHasExactlyItsOutcome(t *testing.T) {
	exactly(t, objects.PullSecrets, cases(t, objects.PullSecrets, 35),
		func(t *testing.T, c objects.Case) []string { return pulled(t, c.Text) })
}

func TestPullSecretsTooLargeToStore(t *testing.T) {
	most, more := objects.LargePullSecrets()
	if got := pulled(t, most); len(got) != 1 || !strings.HasPrefix(got[0], "writes ") {
		t.Errorf("%d bytes: %q", len(most), got)
	}
	// Without its final newline the second has as many bytes as the first, until one is added.
	for _, text := range []string{more, strings.TrimSuffix(more, "\n")} {
		if got := pulled(t, text); len(got) != 1 || !strings.HasPrefix(got[0], "refuses internalRegistryPullSecret: ") ||
			!strings.Contains(got[0], "1048576") {
			t.Errorf("%d bytes: %q", len(text), got)
		}
	}
}

// edited is what becomes of a kubeconfig. That every other byte was kept is looked at here; the digest of
// the whole stands in the outcome.
func edited(t *testing.T, text string) []string {
	t.Helper()
	ca := objects.CA("new")
	out, err := kubeconfig.SetCA([]byte(text), ca)
	if err != nil {
		if _, also := kubeconfig.CA([]byte(text)); also == nil || also.Error() != err.Error() {
			t.Errorf("to read it fails with %v, to change it with %v", also, err)
		}
		return []string{"refuses it: " + err.Error()}
	}
	start, rest, found := strings.Cut(string(out), base64.StdEncoding.EncodeToString(ca))
	if !found || len(start)+len(rest) > len(text) || !strings.HasPrefix(text, start) || !strings.HasSuffix(text, rest) ||
		strings.ContainsAny(text[len(start):len(text)-len(rest)], " \r\n\"':,{}") {
		t.Errorf("more than one value changed:\n%s", out)
	}
	if again, err := kubeconfig.CA(out); err != nil || !bytes.Equal(again, ca) {
		t.Errorf("read back %q, %v", again, err)
	}
	return []string{"replaces the CA and keeps every other byte, sha256 " + plan.DigestOf(out).String()}
}

func TestEveryKubeconfigHasExactlyItsOutcome(t *testing.T) {
	exactly(t, objects.Kubeconfigs, cases(t, objects.Kubeconfigs, 50),
		func(t *testing.T, c objects.Case) []string { return edited(t, c.Text) })
}

// read is a ConfigMap as the agent reads it: from a watch of a server that has it.
func read(t *testing.T, configMap []byte) watch.Object {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"type":"ADDED","object":` + string(configMap) + "}\n"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := watch.New(watch.Options{Client: s.Client(), Server: u, Version: "v1", Resource: "configmaps",
		Namespace: objects.ConfigMapNamespace, Name: objects.ConfigMapName, Key: objects.ConfigMapKey})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	for {
		select {
		case r := <-w.Readings():
			if r.Object != nil {
				return *r.Object
			}
		case <-ctx.Done():
			t.Fatal("the ConfigMap was not read")
		}
	}
}

// fed is what becomes of a ConfigMap on a host whose kubeconfig has an old CA.
func fed(t *testing.T, configMap []byte) []string {
	t.Helper()
	specs := []plan.FileSpec{{Field: plan.KubeconfigCAData, Path: "/etc/kubernetes/kubeconfig"}}
	d := new(watch.Projector).Project(read(t, configMap), specs, objects.Clock)
	d.Verified = true
	old, err := specs[0].Entry("", objects.CA("old"), objects.Clock)
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Compute(plan.Input{Desired: d, Policy: plan.Policy{Files: specs},
		Observed: plan.Observed{old.Key: {Kind: plan.Regular, Digest: old.Digest, Data: old.Data}},
		Known:    map[plan.Digest]pki.Content{old.Digest: {Certs: old.Certs, Whole: true}}})
	return orNothing(slices.Concat(written(p), refused(p)))
}

func TestEveryConfigMapHasExactlyItsOutcome(t *testing.T) {
	exactly(t, objects.ConfigMaps, cases(t, objects.ConfigMaps, 20),
		func(t *testing.T, c objects.Case) []string { return fed(t, c.Object) })
}
