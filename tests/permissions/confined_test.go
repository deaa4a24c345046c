// SPDX-License-Identifier: Apache-2.0

//go:build real

package permissions

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

const (
	states   = "/apis/node-cert-agent.io/v1alpha1/nodecertificatestates"
	requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
)

// token makes a bootstrap token with an extra group.
func token(t *testing.T, p *controlplane.Plane, id, group string, labels string) string {
	t.Helper()
	token, err := p.MakeToken(t.Context(), controlplane.Token{ID: id, Secret: "0123456789abcdef", Groups: group,
		Labels: labels})
	must.Do(t, err)
	return token
}

// request is an object that asks for a client certificate.
func request(t *testing.T, name, cn, o string) map[string]any {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: cn,
		Organization: []string{o}}}, key)
	must.Do(t, err)
	return map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			"signerName": csr.Signer, "usages": csr.Usages(), "expirationSeconds": 604800},
	}
}

func TestOurGroupsAskForOneFormOfCertificateOnly(t *testing.T) {
	p := plane(t)
	name := func(c string) string { return csr.NamePrefix + strings.Repeat(c, 32) }
	spec := func(field string, value any) func(map[string]any) {
		return func(r map[string]any) { r["spec"].(map[string]any)[field] = value }
	}
	renamed := func(n string) func(map[string]any) {
		return func(r map[string]any) { r["metadata"] = map[string]any{"name": n} }
	}
	for who, client := range map[string]*http.Client{
		"an agent":          p.Client(csr.User("a"), csr.Group),
		"a bootstrap token": p.Bearer(token(t, p, "abcdef", csr.BootstrapGroup, "")),
	} {
		good := name("a")
		if who == "an agent" {
			good = name("b")
		}
		if code, answer := ask(t, client, http.MethodPost, p.URL()+requests,
			request(t, good, csr.User("a"), csr.Group)); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", who, code, answer)
		}
		if code, _ := ask(t, client, http.MethodGet, p.URL()+requests+"/"+good, nil); code != http.StatusOK {
			t.Errorf("%s cannot read its request: %d", who, code)
		}
		for sentence, change := range map[string]func(map[string]any){
			"the kubelet's signer":    spec("signerName", "kubernetes.io/kube-apiserver-client-kubelet"),
			"a serving signer":        spec("signerName", "kubernetes.io/kubelet-serving"),
			"a signer of others":      spec("signerName", "example.com/signer"),
			"a further usage":         spec("usages", []string{"digital signature", "client auth", "server auth"}),
			"another usage":           spec("usages", []string{"key encipherment", "client auth"}),
			"one usage":               spec("usages", []string{"client auth"}),
			"no lifetime":             spec("expirationSeconds", nil),
			"ten years":               spec("expirationSeconds", 10*365*24*3600),
			"a name of its own":       renamed("mine"),
			"a name of another's":     renamed("csr-abcde"),
			"a name that is too long": renamed(name("a") + "a"),
			"a name made by the server": func(r map[string]any) {
				r["metadata"] = map[string]any{"generateName": csr.NamePrefix}
			},
			"system:masters": func(r map[string]any) {
				spec("request", request(t, "", csr.User("a"), "system:masters")["spec"].(map[string]any)["request"])(r)
			},
		} {
			r := request(t, name("c"), csr.User("a"), csr.Group)
			change(r)
			if code, answer := ask(t, client, http.MethodPost, p.URL()+requests, r); code < 400 || code >= 500 ||
				code == http.StatusConflict {
				t.Errorf("%s asks for %s: %d %s", who, sentence, code, answer)
			} else if !strings.Contains(answer, "ValidatingAdmissionPolicy 'node-cert-agent-requests'") &&
				sentence != "system:masters" {
				t.Errorf("%s asks for %s and is refused by somebody else: %s", who, sentence, answer)
			}
		}
	}
}

// everything is a report with every field.
const everything = `{"conditions":[{"type":"Synced","status":"True","reason":"InPlace","message":"m",
"lastTransitionTime":"2026-11-21T08:00:00Z","observedVersion":"7"}],"state":"synced","reason":"in line with the object","heartbeat":"2026-11-21T08:00:00Z",
"agent":{"version":"1.0.0"},"synced":{"uid":"u","resourceVersion":"7"},
"counts":{"files":2,"held":1,"pending":1},"earliestExpiry":"2027-01-01T00:00:00Z",
"files":[{"field":"rootCAData","sha256":"DIGEST","certificates":["DIGEST"],"earliestExpiry":"2027-01-01T00:00:00Z"},
{"field":"imageRegistryBundleData","name":"registry.example.com..5000","sha256":"DIGEST","certificates":[]}],
"held":[{"field":"rootCAData","certificate":"DIGEST","until":"2026-11-21T09:00:00Z","reason":"r"}],
"pending":[{"unit":"a.service","verb":"reload","reason":"r"}],
"breaker":{"unit":"a.service","since":"2026-11-21T08:00:00Z","reason":"r"},
"renewal":{"unrenewedNotAfter":"2026-12-24T00:00:00Z","earliestNotAfter":"2026-12-01T00:00:00Z","observedTime":"2026-11-21T08:00:00Z"},
"identity":{"serial":"0a","publicKey":"DIGEST","issued":"2026-11-21T08:00:00Z","expires":"2026-12-24T00:00:00Z"}}`

func TestAnAgentWritesTheStateOfItsOwnNodeOnly(t *testing.T) {
	p := plane(t)
	agent := p.Client(csr.User("a"), csr.Group)
	state := func(name string, more map[string]any) map[string]any {
		s := map[string]any{"apiVersion": "node-cert-agent.io/v1alpha1", "kind": "NodeCertificateState",
			"metadata": map[string]any{"name": name},
			"status":   json.RawMessage(strings.ReplaceAll(everything, "DIGEST", strings.Repeat("0a", 32)))}
		maps.Copy(s["metadata"].(map[string]any), more)
		return s
	}
	bare := func(name string, more map[string]any) map[string]any {
		s := state(name, more)
		delete(s, "status")
		return s
	}
	main := func(name string) string {
		return p.URL() + states + "/" + name + "?fieldManager=node-cert-agent&force=true"
	}
	apply := func(name string) string {
		return p.URL() + states + "/" + name + "/status?fieldManager=node-cert-agent&force=true"
	}
	forged := map[string]any{"managedFields": []any{map[string]any{"manager": "node-cert-agent", "operation": "Apply",
		"apiVersion": "node-cert-agent.io/v1alpha1", "time": "2031-01-01T00:00:00Z", "fieldsType": "FieldsV1",
		"subresource": "status", "fieldsV1": map[string]any{"f:status": map[string]any{"f:state": map[string]any{}}}}}}
	note := bare("a", nil)
	note["spec"] = map[string]any{"knownSince": "2026-11-21T08:00:00Z"}
	for sentence, object := range map[string]map[string]any{
		"a note":              note,
		"a time":              bare("a", forged),
		"an annotation":       bare("a", map[string]any{"annotations": map[string]string{"x": "y"}}),
		"another node's name": bare("b", nil),
	} {
		if code, answer := ask(t, agent, http.MethodPost, p.URL()+states, object); code != http.StatusUnprocessableEntity {
			t.Errorf("its own, made with %s: %d %s", sentence, code, answer)
		}
	}
	if code, answer := ask(t, agent, http.MethodPost, p.URL()+states, state("a", nil)); code != http.StatusCreated ||
		strings.Contains(answer, `"synced"`) {
		t.Fatalf("its own: %d %s, want it made without the status", code, answer)
	}
	if code, answer := ask(t, agent, http.MethodPatch, apply("a"), state("a", nil)); code != http.StatusOK {
		t.Fatalf("its own: %d %s", code, answer)
	}
	// An apply of nothing by another manager, which is how an agent reads what it said before its start.
	read := strings.Replace(apply("a"), "agent&force=true", "agent-reader&dryRun=All", 1)
	if code, answer := ask(t, agent, http.MethodPatch, read, bare("a", nil)); code != http.StatusOK ||
		!strings.Contains(answer, `"observedVersion":"7"`) {
		t.Errorf("its own, by an apply of nothing: %d %s", code, answer)
	}
	read = strings.Replace(read, "/a/", "/b/", 1)
	if code, answer := ask(t, p.AdminClient(), http.MethodPatch, main("b"), bare("b", nil)); code != http.StatusCreated {
		t.Fatalf("the administrator: %d %s", code, answer)
	}
	// A field that the schema does not have would be dropped, and the report be poorer than it says.
	if code, answer := ask(t, agent, http.MethodPatch, apply("a")+"&fieldValidation=Strict",
		state("a", nil)); code != http.StatusOK {
		t.Errorf("not every field is in the schema: %d %s", code, answer)
	}
	for sentence, refused := range map[string]struct {
		method, url string
		body        any
	}{
		"another's, there":           {http.MethodPatch, apply("b"), state("b", nil)},
		"another's, read by a write": {http.MethodPatch, read, bare("b", nil)},
		"another's, by POST":         {http.MethodPost, p.URL() + states, state("c", nil)},
		"an annotation": {http.MethodPatch, main("a"), bare("a",
			map[string]any{"annotations": map[string]string{"node-cert-agent.io/allow-rebootstrap": "x"}})},
		"a label": {http.MethodPatch, main("a"), bare("a", map[string]any{"labels": map[string]string{"x": "y"}})},
		"a finalizer": {http.MethodPatch, main("a"), bare("a",
			map[string]any{"finalizers": []string{"example.com/x"}})},
		"a note":           {http.MethodPatch, main("a"), note},
		"another manager":  {http.MethodPatch, p.URL() + states + "/a/status?fieldManager=x&force=true", state("a", nil)},
		"update":           {http.MethodPut, p.URL() + states + "/a", state("a", nil)},
		"update of status": {http.MethodPut, p.URL() + states + "/a/status", state("a", nil)},
		"delete":           {http.MethodDelete, p.URL() + states + "/a", nil},
		"reading its own":  {http.MethodGet, p.URL() + states + "/a", nil},
		"reading all":      {http.MethodGet, p.URL() + states, nil},
		"secrets":          {http.MethodGet, p.URL() + "/api/v1/secrets", nil},
		"a secret":         {http.MethodGet, p.URL() + "/api/v1/namespaces/kube-system/secrets/x", nil},
		"nodes":            {http.MethodGet, p.URL() + "/api/v1/nodes", nil},
		"its node":         {http.MethodGet, p.URL() + "/api/v1/nodes/a", nil},
		"all requests":     {http.MethodGet, p.URL() + requests, nil},
		"approval": {http.MethodPut, p.URL() + requests + "/x/approval",
			request(t, "x", csr.User("a"), csr.Group)},
		"a controllerconfig": {http.MethodGet, p.URL() + "/apis/node-cert-agent.io/v1alpha1/controllerconfigs/other",
			nil},
		"writing what it watches": {http.MethodPatch,
			p.URL() + "/apis/node-cert-agent.io/v1alpha1/controllerconfigs/machine-config-controller?fieldManager=x",
			map[string]any{}},
		"binding a role to itself": {http.MethodPost, p.URL() + "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
			map[string]any{}},
	} {
		if code, answer := ask(t, agent, refused.method, refused.url, refused.body); code != http.StatusForbidden &&
			code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", sentence, code, answer)
		}
	}
	forgeTimes(t, p, agent, apply("a"), state("a", nil))
	smuggle(t, p, agent, apply("a"), state)
	noteAndReport(t, p, note)
	_, err := p.Kubectl(t.Context(), "wait", "--for=condition=Synced", "ncs", "a", "--timeout=10s")
	must.Do(t, err)
	out, err := p.Kubectl(t.Context(), "get", "nodecertificatestates")
	must.Do(t, err)
	for _, want := range []string{"MAY BE OFF UNTIL", "True", "2026-12-24T00:00:00Z", "2027-01-01T00:00:00Z", "synced",
		"a.service"} {
		if !strings.Contains(out, want) || strings.Count(out, "\n") != 3 {
			t.Errorf("not one readable line for each node, with %s:\n%s", want, out)
		}
	}
	t.Logf("\n%s", out)
}

// forgeTimes tries what would make a report look younger or older than it is, and sees that an honest report is
// taken nevertheless, also where somebody else has written the object.
func forgeTimes(t *testing.T, p *controlplane.Plane, agent *http.Client, url string, honest map[string]any) {
	t.Helper()
	object, _, _ := strings.Cut(url, "/status?")
	_, answer := ask(t, p.AdminClient(), http.MethodGet, object, nil)
	var live struct {
		Metadata struct {
			ManagedFields []map[string]any `json:"managedFields"`
		} `json:"metadata"`
	}
	must.Do(t, json.Unmarshal([]byte(answer), &live))
	for _, m := range live.Metadata.ManagedFields {
		m["time"] = "2031-01-01T00:00:00Z"
	}
	status := map[string]any{"state": "forged"}
	for sentence, patch := range map[string]map[string]any{
		// Of a change of managedFields alone the server takes nothing, and says that this is well.
		"the times alone":           {"metadata": map[string]any{"managedFields": live.Metadata.ManagedFields}},
		"the times with its report": {"metadata": map[string]any{"managedFields": live.Metadata.ManagedFields}, "status": status},
		"no managers":               {"metadata": map[string]any{"managedFields": []any{map[string]any{}}}},
		"its report by a patch":     {"status": status},
	} {
		code, answer := merge(t, agent, url, patch)
		if code != http.StatusUnprocessableEntity && code != http.StatusForbidden && patch["status"] != nil {
			t.Errorf("%s: %d %.300s", sentence, code, answer)
		}
	}
	_, answer = ask(t, p.AdminClient(), http.MethodGet, object, nil)
	if strings.Contains(answer, "2031") || strings.Contains(answer, "forged") || !strings.Contains(answer, `"f:status"`) {
		t.Errorf("the object holds what was forged: %.2000s", answer)
	}
	honest["status"] = map[string]any{"state": "synced", "heartbeat": "2026-11-21T09:00:00Z"}
	if code, answer := ask(t, agent, http.MethodPatch, url, honest); code != http.StatusOK {
		t.Errorf("an honest report: %d %s", code, answer)
	}
	for _, by := range []string{"kubectl-edit", "somebody"} {
		edit := strings.Replace(url, "node-cert-agent&force", by+"&force", 1)
		if code, answer := merge(t, p.AdminClient(), edit, map[string]any{"status": map[string]any{"state": by}}); code != http.StatusOK {
			t.Fatalf("the administrator: %d %s", code, answer)
		}
		if code, answer := ask(t, agent, http.MethodPatch, url, honest); code != http.StatusOK {
			t.Errorf("an honest report after that of %s: %d %s", by, code, answer)
		}
	}
	honest["status"] = json.RawMessage(strings.ReplaceAll(everything, "DIGEST", strings.Repeat("0a", 32)))
	if code, answer := ask(t, agent, http.MethodPatch, url, honest); code != http.StatusOK {
		t.Errorf("an honest report: %d %s", code, answer)
	}
}

// smuggle has an agent write notes and annotations together with its status, through the one door that it has.
func smuggle(t *testing.T, p *controlplane.Plane, agent *http.Client, url string,
	state func(name string, more map[string]any) map[string]any,
) {
	t.Helper()
	noted := state("a", nil)
	noted["spec"] = map[string]any{"knownSince": "2026-11-21T08:00:00Z"}
	for sentence, object := range map[string]map[string]any{
		"a note": noted,
		"an annotation": state("a",
			map[string]any{"annotations": map[string]string{"node-cert-agent.io/allow-rebootstrap": "x"}}),
	} {
		// The server may take nothing of it and say that this is well.
		code, answer := ask(t, agent, http.MethodPatch, url, object)
		t.Logf("%s through the status: %d %.200s", sentence, code, answer)
	}
	_, answer := ask(t, p.AdminClient(), http.MethodGet, strings.Split(url, "/status?")[0], nil)
	if strings.Contains(answer, "knownSince") || strings.Contains(answer, "allow-rebootstrap") {
		t.Errorf("the object holds what was smuggled: %.2000s", answer)
	}
}

// noteAndReport has the controller write its notes, and nothing else of the object.
func noteAndReport(t *testing.T, p *controlplane.Plane, note map[string]any) {
	t.Helper()
	controller := p.Client(approver, "system:serviceaccounts", "system:serviceaccounts:node-cert-agent")
	url := p.URL() + states + "/a?fieldManager=node-cert-controller-approver&force=true"
	annotated := map[string]any{"apiVersion": note["apiVersion"], "kind": note["kind"], "spec": note["spec"],
		"metadata": map[string]any{"name": "a", "annotations": map[string]string{"node-cert-agent.io/allow-rebootstrap": "x"}}}
	wait.For(t, "the policy about notes at the server", func() bool {
		_, answer := ask(t, controller, http.MethodPatch, url+"&dryRun=All", annotated)
		return strings.Contains(answer, "'node-cert-controller-states'")
	})
	if code, answer := ask(t, controller, http.MethodPatch, url, note); code != http.StatusOK ||
		!strings.Contains(answer, "knownSince") || !strings.Contains(answer, `"observedVersion":"7"`) {
		t.Errorf("a note beside a report: %d %s", code, answer)
	}
	report := map[string]any{"apiVersion": note["apiVersion"], "kind": note["kind"],
		"metadata": map[string]any{"name": "a"}, "status": map[string]any{"state": "forged"}}
	if code, answer := ask(t, controller, http.MethodPatch, strings.Replace(url, "/a?", "/a/status?", 1),
		report); code != http.StatusForbidden {
		t.Errorf("the controller writes a report: %d %s", code, answer)
	}
	report["spec"] = note["spec"]
	if code, answer := ask(t, controller, http.MethodPatch, url, report); code >= 300 || strings.Contains(answer, "forged") {
		t.Errorf("the controller writes a report beside its note: %d %s", code, answer)
	}
}

// merge sends a JSON merge patch, which is what kubectl edit sends.
func merge(t *testing.T, c *http.Client, url string, body any) (int, string) {
	t.Helper()
	b, err := json.Marshal(body)
	must.Do(t, err)
	url = strings.Replace(url, "&force=true", "", 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url, bytes.NewReader(b))
	must.Do(t, err)
	req.Header.Set("Content-Type", "application/merge-patch+json")
	resp, err := c.Do(req)
	must.Do(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	return resp.StatusCode, string(answer)
}

func TestAKubeletStillJoins(t *testing.T) {
	p := plane(t)
	const group = "system:bootstrappers:kubeadm:default-node-token"
	for _, role := range []string{"system:node-bootstrapper",
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient"} {
		_, err := p.Kubectl(t.Context(), "create", "clusterrolebinding", strings.ReplaceAll(role, ":", "-"),
			"--clusterrole="+role, "--group="+group)
		must.Do(t, err)
	}
	kubelet := p.Bearer(token(t, p, "kubele", group, ""))
	r := request(t, "csr-kubelet", "system:node:a", "system:nodes")
	r["spec"].(map[string]any)["signerName"] = "kubernetes.io/kube-apiserver-client-kubelet"
	delete(r["spec"].(map[string]any), "expirationSeconds")
	wait.For(t, "the bindings at the authoriser", func() bool {
		code, answer := ask(t, kubelet, http.MethodPost, p.URL()+requests, r)
		if code != http.StatusCreated && code != http.StatusForbidden {
			t.Fatalf("the kubelet's request: %d %s", code, answer)
		}
		return code == http.StatusCreated
	})
	_, err := p.Kubectl(t.Context(), "wait", "csr/csr-kubelet", "--for=jsonpath={.status.certificate}", "--timeout=30s")
	must.Do(t, err)
	node := p.Client("system:node:a", "system:nodes")
	code, answer := ask(t, node, http.MethodPost, p.URL()+"/api/v1/nodes",
		map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "a"}})
	if code != http.StatusCreated {
		t.Errorf("the kubelet registers its node: %d %s", code, answer)
	}
}

func TestTheApproverIsFenced(t *testing.T) {
	p := plane(t)
	client := p.Client(approver, "system:serviceaccounts", "system:serviceaccounts:node-cert-agent")
	approved := map[string]any{"conditions": []any{map[string]any{"type": "Approved", "status": "True", "reason": "Test"}}}
	approve := func(name string, change func(spec map[string]any)) (int, string) {
		r := request(t, name, csr.User("a"), csr.Group)
		change(r["spec"].(map[string]any))
		if code, answer := ask(t, p.AdminClient(), http.MethodPost, p.URL()+requests, r); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", name, code, answer)
		}
		r["status"] = approved
		return ask(t, client, http.MethodPut, p.URL()+requests+"/"+name+"/approval", r)
	}
	// What is waited for after an installation is another policy; this one may come a moment later.
	r := request(t, "early", csr.User("a"), csr.Group)
	if code, answer := ask(t, p.AdminClient(), http.MethodPost, p.URL()+requests, r); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	r["status"] = approved
	wait.For(t, "the policy about the approver at the server", func() bool {
		_, answer := ask(t, client, http.MethodPut, p.URL()+requests+"/early/approval?dryRun=All", r)
		return strings.Contains(answer, "ValidatingAdmissionPolicy 'node-cert-controller-approver'")
	})
	good := csr.NamePrefix + strings.Repeat("v", 32)
	if code, answer := approve(good, func(map[string]any) {}); code != http.StatusOK {
		t.Errorf("a good request: %d %s", code, answer)
	}
	for name, change := range map[string]func(map[string]any){
		"by-name": func(map[string]any) {},
		csr.NamePrefix + strings.Repeat("1",
			32): func(s map[string]any) { s["signerName"] = "kubernetes.io/kube-apiserver-client-kubelet" },
		csr.NamePrefix + strings.Repeat("2", 32): func(s map[string]any) { s["usages"] = []string{"client auth"} },
		csr.NamePrefix + strings.Repeat("3", 32): func(s map[string]any) { s["expirationSeconds"] = 10 * 365 * 24 * 3600 },
	} {
		if code, answer := approve(name, change); code != http.StatusForbidden && code != http.StatusUnprocessableEntity {
			t.Errorf("%s could be approved: %d %s", name, code, answer)
		}
	}
	secrets := p.URL() + "/api/v1/namespaces/kube-system/secrets/"
	token(t, p, "shared", csr.BootstrapGroup, "")
	token(t, p, "single", csr.BootstrapGroup, `node-cert-agent.io/single-use: "true"`)
	wait.For(t, "the policy about tokens at the server", func() bool {
		code, _ := ask(t, client, http.MethodDelete, secrets+"bootstrap-token-shared",
			map[string]any{"dryRun": []string{"All"}})
		return code == http.StatusForbidden || code == http.StatusUnprocessableEntity
	})
	if code, answer := ask(t, client, http.MethodDelete, secrets+"bootstrap-token-single", nil); code != http.StatusOK {
		t.Errorf("a token for single use: %d %s", code, answer)
	}
	if code, _ := ask(t, client, http.MethodGet, p.URL()+"/api/v1/secrets", nil); code != http.StatusForbidden {
		t.Errorf("all secrets: %d", code)
	}
}
