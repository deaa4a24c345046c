// SPDX-License-Identifier: Apache-2.0

//go:build real

package clusterapi

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	uberzap "go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/node-cert-agent/node-cert-agent/cluster/clusterapi"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/runbook"
)

const (
	account    = "system:serviceaccount:node-cert-agent:node-cert-controller"
	annotation = `{.metadata.annotations.machine\.cluster\.x-k8s\.io/certificates-expiry}`
	page       = "../../docs/usage/cluster-api.md"
)

// management is a management cluster, and every workload cluster besides.
type management struct {
	*controlplane.Plane
	t *testing.T
}

// start gives one with Cluster API's kinds, and with what the component grants in the whole cluster.
func start(t *testing.T) *management {
	t.Helper()
	log.SetLogger(zap.New(zap.WriteTo(t.Output())))
	p, err := controlplane.Start(t.Context(), controlplane.Options{Progress: t.Output()})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	m := &management{p, t}
	for _, kind := range []string{"clusters", "machines"} {
		m.kubectl("apply", "--server-side", "-f", filepath.Join(theirs(t), "core/config/crd/bases/cluster.x-k8s.io_"+kind+".yaml"))
	}
	states, err := os.ReadFile("../../packaging/kubernetes/crd/nodecertificatestates.node-cert-agent.io.yaml")
	must.Do(t, err)
	m.apply(string(states))
	m.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	m.apply("{apiVersion: v1, kind: Namespace, metadata: {name: node-cert-agent}}")
	must.Do(t, p.InstallClusterAPI(t.Context()))
	return m
}

// theirs is the folder of Cluster API's module.
func theirs(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-C", "crds", "-json", "sigs.k8s.io/cluster-api").Output()
	must.Do(t, err)
	var module struct{ Dir string }
	must.Do(t, json.Unmarshal(out, &module))
	return module.Dir
}

// with is m for a part of the test.
func (m *management) with(t *testing.T) *management { return &management{m.Plane, t} }

// run runs the controller until the test ends. It looks at each Cluster five times in a second.
func (m *management) run() {
	m.t.Helper()
	path, err := m.Kubeconfig(m.URL(), account, "system:serviceaccounts", "system:serviceaccounts:node-cert-agent")
	must.Do(m.t, err)
	rest, err := clientcmd.BuildConfigFromFlags("", path)
	must.Do(m.t, err)
	rest.QPS, rest.Burst = 400, 400
	many := true
	mgr, err := manager.New(rest, manager.Options{Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &many}})
	must.Do(m.t, err)
	o := clusterapi.Usual
	o.Every, o.Timeout, o.Log = 200*time.Millisecond, 2*time.Second, uberzap.NewNop()
	must.Do(m.t, clusterapi.Add(mgr, o))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	m.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			m.t.Errorf("the controller ended: %v", err)
		}
	})
}

func (m *management) kubectl(args ...string) string {
	m.t.Helper()
	out, err := m.Kubectl(m.t.Context(), args...)
	must.Do(m.t, err)
	return out
}

func (m *management) apply(manifests string) {
	m.t.Helper()
	must.Do(m.t, m.Apply(m.t.Context(), []byte(manifests)))
}

// block runs one of the page as an administrator; each pair of words is the page's and what stands in its place.
func (m *management) block(heading string, block int, words ...string) string {
	m.t.Helper()
	text := strings.NewReplacer(words...).Replace(runbook.Read(m.t, page).Block(heading, block))
	bin := m.t.TempDir()
	must.Do(m.t, os.Symlink(m.KubectlPath(), filepath.Join(bin, "kubectl")))
	cmd := exec.CommandContext(m.t.Context(), "sh", "-euc", text)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(m.Dir(), "admin.kubeconfig"), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", text, err, out)
	}
	return string(out)
}

// granted makes a namespace that grants what the page says.
func (m *management) granted(namespace string) {
	m.t.Helper()
	m.apply(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", namespace))
	m.block("Grant a namespace", 0, "NAMESPACE", namespace)
}

// cluster makes a Cluster with its kubeconfig.
func (m *management) cluster(namespace, name string, kubeconfig []byte) {
	m.t.Helper()
	m.apply(fmt.Sprintf(`{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: %s, namespace: %s},
		spec: {controlPlaneEndpoint: {host: 127.0.0.1, port: 6443}}}`, name, namespace))
	m.secret(namespace, name+"-kubeconfig", map[string][]byte{"value": kubeconfig})
}

// credentials are those that Cluster API would put into CLUSTER-kubeconfig.
func (m *management) credentials() []byte {
	m.t.Helper()
	path, err := m.Kubeconfig(m.URL(), "kubernetes-admin", "system:masters")
	must.Do(m.t, err)
	b, err := os.ReadFile(path)
	must.Do(m.t, err)
	return b
}

func (m *management) secret(namespace, name string, data map[string][]byte) {
	m.t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
		"metadata": map[string]any{"namespace": namespace, "name": name}, "data": data})
	must.Do(m.t, err)
	m.kubectl("delete", "secret", "-n", namespace, name, "--ignore-not-found") // it may be the controller's by now
	m.apply(string(text))
}

// machine makes a Machine of the control plane, on the node of the same name.
func (m *management) machine(namespace, cluster, name string) {
	m.t.Helper()
	m.apply(fmt.Sprintf(`{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: %[3]s, namespace: %[1]s,
		labels: {cluster.x-k8s.io/cluster-name: %[2]s, cluster.x-k8s.io/control-plane: ""}},
		spec: {clusterName: %[2]s, bootstrap: {dataSecretName: x},
		infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachine, name: x}}}`, namespace, cluster, name))
	m.kubectl("patch", "machine", "-n", namespace, name, "--subresource=status", "--type=merge", "-p",
		fmt.Sprintf(`{"status": {"nodeRef": {"name": %q}}}`, name))
}

// reports has the agent of a node say when pairs end: the first that nobody renews, and the first of all.
func (m *management) reports(node, unrenewed, earliest string) {
	m.t.Helper()
	renewal := map[string]any{"observedTime": time.Now().UTC().Format(time.RFC3339), "earliestNotAfter": earliest,
		"unrenewedNotAfter": nil}
	if unrenewed != "" {
		renewal["unrenewedNotAfter"] = unrenewed
	}
	m.report(node, renewal)
}

// report has the agent of a node say this about pairs. Nil says nothing.
func (m *management) report(node string, renewal any) {
	m.t.Helper()
	// The API server tracks who wrote what only for an object of which somebody has applied something.
	m.apply(fmt.Sprintf("{apiVersion: node-cert-agent.io/v1alpha1, kind: NodeCertificateState, metadata: {name: %s, labels: "+
		"{made-by: a-test}}}", node))
	text, err := json.Marshal(map[string]any{"status": map[string]any{"heartbeat": time.Now().UTC().Format(time.RFC3339),
		"state": "watching", "renewal": renewal}})
	must.Do(m.t, err)
	m.kubectl("patch", "nodecertificatestate", node, "--subresource=status", "--type=merge", "-p", string(text))
}

// has waits until a Machine states a date.
func (m *management) has(namespace, machine, want string) {
	m.t.Helper()
	last := ""
	m.until(fmt.Sprintf("%s states %q", machine, want), func() bool {
		last = m.kubectl("get", "machine", "-n", namespace, machine, "-o", "jsonpath="+annotation)
		return last == want
	}, &last)
}

// event waits for one about an object, of this reason and with these words.
func (m *management) event(namespace, object, reason, words string) {
	m.t.Helper()
	last := ""
	m.until(fmt.Sprintf("an event %s about %s with %q", reason, object, words), func() bool {
		last = m.kubectl("get", "events", "-n", namespace, "--field-selector=involvedObject.name="+object+",reason="+reason, "-o",
			"jsonpath={.items[*].message}")
		return strings.Contains(last, words)
	}, &last)
}

// until tries again until it succeeds, where the outside tells nobody.
func (m *management) until(what string, try func() bool, last *string) {
	m.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(40 * time.Second)
	for !try() {
		select {
		case <-limit:
			m.t.Fatalf("not within 40 seconds: %s; last seen: %s", what, *last)
		case <-tick.C:
		}
	}
}
