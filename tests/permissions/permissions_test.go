// SPDX-License-Identifier: Apache-2.0

//go:build real

package permissions

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

const (
	agent     = "node-cert-agent:nodes"
	bootstrap = "system:bootstrappers:node-cert-agent"
	reader    = "ClusterRole node-cert-controller-metrics-reader"
	machines  = "ClusterRole node-cert-cluster-api-namespace"
	approver  = "system:serviceaccount:node-cert-agent:node-cert-controller"
)

// plane starts a control plane with everything that is shipped.
func plane(t *testing.T) *controlplane.Plane {
	t.Helper()
	p, err := controlplane.Start(t.Context(), controlplane.Options{Progress: t.Output()})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	must.Do(t, p.InstallShipped(t.Context()))
	must.Do(t, p.InstallSingleUse(t.Context()))
	must.Do(t, p.InstallMachines(t.Context()))
	must.Do(t, p.InstallOpenShift(t.Context()))
	monitoring, err := os.ReadFile(manifests + "/components/monitoring/rbac.yaml")
	must.Do(t, err)
	must.Do(t, p.Apply(t.Context(), monitoring))
	must.Do(t, p.InstallPublisher(t.Context()))
	must.Do(t, p.InstallKubeadm(t.Context()))
	must.Do(t, p.InstallClusterAPI(t.Context()))
	return p
}

// ask sends one request and returns the status and the body.
func ask(t *testing.T, c *http.Client, method, url string, body any) (int, string) {
	t.Helper()
	b, err := json.Marshal(body)
	must.Do(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(b))
	must.Do(t, err)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	resp, err := c.Do(req)
	must.Do(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	return resp.StatusCode, string(answer)
}

func TestTheServerGrantsEachRoleItsTableAndNothingElse(t *testing.T) {
	p := plane(t)
	must.Do(t, p.InstallOpenShiftCRD(t.Context()))
	table, err := Read(manifests)
	must.Do(t, err)
	subjects := map[string]map[string]any{
		agent: {"user": "node-cert-agent:node:a", "groups": []string{agent, "system:authenticated"}},
		bootstrap: {"user": "system:bootstrap:abcdef", "groups": []string{"system:bootstrappers", bootstrap,
			"system:authenticated"}},
		approver: {"user": approver, "groups": []string{"system:serviceaccounts", "system:serviceaccounts:node-cert-agent",
			"system:authenticated"}},
		reader:   {"user": "prometheus", "groups": []string{"system:authenticated"}},
		machines: {"user": "machines", "groups": []string{"system:authenticated"}},
	}
	_, err = p.Kubectl(t.Context(), "create", "clusterrolebinding", "prometheus", "--user=prometheus",
		"--clusterrole=node-cert-controller-metrics-reader")
	must.Do(t, err)
	_, err = p.Kubectl(t.Context(), "create", "clusterrolebinding", "machines", "--user=machines",
		"--clusterrole=node-cert-cluster-api-namespace")
	must.Do(t, err)
	if len(table) != len(subjects) {
		t.Fatalf("the manifests know %d roles, the test %d", len(table), len(subjects))
	}
	questions := universe(t, p, table)
	for role, subject := range subjects {
		t.Run(role, func(t *testing.T) {
			granted := 0
			for q, yes := range answers(t, p, subject, questions) {
				if yes {
					granted++
				}
				if want := table.Allows(role, q) || everybody(q); yes != want {
					t.Errorf("%+v is granted: %v, want %v", q, yes, want)
				}
			}
			t.Logf("%d questions, %d granted", len(questions), granted)
		})
	}
}

// everybody is what Kubernetes grants all authenticated users: to ask about themselves.
func everybody(q Request) bool {
	return q.Verb == "create" && (q.Group == "authorization.k8s.io" &&
		(q.Resource == "selfsubjectaccessreviews" || q.Resource == "selfsubjectrulesreviews") ||
		q.Group == "authentication.k8s.io" && q.Resource == "selfsubjectreviews")
}

// universe is every verb on every kind that is served and on what only authorisers know, cluster-wide
// and in the namespaces that matter, for no name, another's and each that the table names.
func universe(t *testing.T, p *controlplane.Plane, table Table) (out []Request) {
	t.Helper()
	list, err := p.Kubectl(t.Context(), "api-resources", "-o", "name")
	must.Do(t, err)
	resources := append(strings.Fields(list), "users", "groups", "serviceaccounts/token", "nodes/proxy", "nodes/status",
		"pods/exec",
		"signers.certificates.k8s.io", "nodecertificatestates/status.node-cert-agent.io", "machines.machine.openshift.io",
		"clusters.cluster.x-k8s.io", "machines.cluster.x-k8s.io", "machines/status.cluster.x-k8s.io")
	for _, sub := range []string{"approval", "status", "nodeclient", "selfnodeclient", "nodecertbootstrap",
		"nodecertrenew"} {
		resources = append(resources, "certificatesigningrequests/"+sub+".certificates.k8s.io")
	}
	names := []string{"", "another"}
	for _, rules := range table {
		for _, r := range rules {
			names = append(names, r.Names...)
		}
	}
	slices.Sort(names)
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "approve", "sign",
		"impersonate", "bind", "escalate"}
	for _, resource := range resources {
		name, group, _ := strings.Cut(resource, ".")
		for _, verb := range verbs {
			for _, namespace := range []string{"", "default", "kube-system", "kube-public", "node-cert-agent",
				controlplane.MachineConfigNamespace, "openshift-machine-api"} {
				for _, object := range slices.Compact(slices.Clone(names)) {
					out = append(out, Request{Verb: verb, Group: group, Resource: name, Namespace: namespace, Name: object})
				}
			}
		}
	}
	for _, url := range []string{"/", "/metrics", "/metrics/slis", "/logs", "/debug/pprof"} {
		out = append(out, Request{Verb: "get", URL: url}, Request{Verb: "post", URL: url})
	}
	return out
}

// answers asks the server for each question whether the subject may.
func answers(t *testing.T, p *controlplane.Plane, subject map[string]any, questions []Request) map[Request]bool {
	t.Helper()
	var lock sync.Mutex
	out := make(map[Request]bool, len(questions))
	var workers sync.WaitGroup
	for part := range slices.Chunk(questions, len(questions)/8+1) {
		workers.Go(func() {
			for _, q := range part {
				spec := map[string]any{"user": subject["user"], "groups": subject["groups"]}
				if resource, sub, _ := strings.Cut(q.Resource, "/"); q.URL == "" {
					spec["resourceAttributes"] = map[string]string{
						"verb": q.Verb, "group": q.Group, "version": "*", "resource": resource, "subresource": sub,
						"namespace": q.Namespace, "name": q.Name}
				} else {
					spec["nonResourceAttributes"] = map[string]string{"verb": q.Verb, "path": q.URL}
				}
				code, answer := ask(t, p.AdminClient(), http.MethodPost,
					p.URL()+"/apis/authorization.k8s.io/v1/subjectaccessreviews", map[string]any{
						"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
						"spec": spec,
					})
				if code != http.StatusCreated {
					t.Errorf("%+v: %d %s", q, code, answer)
				}
				lock.Lock()
				out[q] = strings.Contains(answer, `"allowed":true`)
				lock.Unlock()
			}
		})
	}
	workers.Wait()
	return out
}

func TestTheComponentsFitTogether(t *testing.T) {
	p := plane(t)
	root, err := filepath.Abs(manifests)
	must.Do(t, err)
	dir := t.TempDir()
	rel, err := filepath.Rel(dir, root)
	must.Do(t, err)
	all := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [" + rel + "]\ncomponents: [" +
		rel + "/components/publisher, " + rel + "/components/kubeadm, " + rel + "/components/single-use, " + rel +
		"/components/openshift, " + rel +
		"/components/openshift-machines, " + rel + "/components/cluster-api, " + rel + "/components/monitoring]\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(all), 0o644))
	out, err := p.Kubectl(t.Context(), "kustomize", dir)
	must.Do(t, err)
	found, err := documents([]byte(out))
	must.Do(t, err)
	got, err := bind(found)
	must.Do(t, err)
	want, err := Read(manifests)
	must.Do(t, err)
	if !strings.Contains(out, "- --machines\n") {
		t.Error("the approver is not told of machines")
	}
	if !strings.Contains(out, "- --metrics-bind-address=:10458\n") || !strings.Contains(out, "kind: ServiceMonitor\n") {
		t.Error("with monitoring the metrics are not served, or nobody is told of them")
	}
	if !strings.Contains(out, "- --controllers=approver,publisher\n") {
		t.Error("with the publisher nobody runs it")
	}
	if !strings.Contains(out, "- --controllers=approver,cluster-api\n") {
		t.Error("with cluster-api nobody runs it")
	}
	for _, name := range []string{"extension-apiserver-authentication", "kube-root-ca.crt"} {
		if !strings.Contains(out, "      name: "+name+"\n") {
			t.Error("with kubeadm no NodeBundle takes from " + name)
		}
	}
	if got.Markdown() != want.Markdown() {
		t.Errorf("kustomize makes another table:\n%s", got.Markdown())
	}
}
