// SPDX-License-Identifier: Apache-2.0

//go:build real

package publisher

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/cluster/fleet"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

const (
	account = "system:serviceaccount:node-cert-agent:node-cert-controller"
	// object is what nodes watch.
	object = "controllerconfig.node-cert-agent.io/machine-config-controller"
	// lease lets replicas agree who leads; the component of the controller as a whole brings it.
	lease = `
{apiVersion: v1, kind: Namespace, metadata: {name: node-cert-agent}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: lease, namespace: node-cert-agent},
 rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, update]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: lease, namespace: node-cert-agent},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: lease},
 subjects: [{kind: ServiceAccount, name: node-cert-controller, namespace: node-cert-agent}]}
`
)

// cluster is a control plane with the kinds and the rights of the publisher.
type cluster struct {
	*controlplane.Plane
	t *testing.T
	// bin has what an administrator runs, after install.
	bin string
}

func start(t *testing.T, o controlplane.Options) *cluster {
	t.Helper()
	o.Progress = t.Output()
	log.SetLogger(zap.New(zap.WriteTo(t.Output())))
	p, err := controlplane.Start(t.Context(), o)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{Plane: p, t: t}
	must.Do(t, p.InstallCRD(t.Context()))
	must.Do(t, p.InstallPublisher(t.Context()))
	states, err := os.ReadFile("../../packaging/kubernetes/crd/nodecertificatestates.node-cert-agent.io.yaml")
	must.Do(t, err)
	c.apply(string(states))
	c.apply(lease)
	return c
}

// with is c for a part of the test.
func (c *cluster) with(t *testing.T) *cluster { return &cluster{c.Plane, t, c.bin} }

// publish runs a replica of the publisher until the returned function is called, or the test ends.
func (c *cluster) publish() (stop func()) {
	c.t.Helper()
	path, err := c.Kubeconfig(c.URL(), account)
	must.Do(c.t, err)
	rest, err := clientcmd.BuildConfigFromFlags("", path)
	must.Do(c.t, err)
	rest.QPS, rest.Burst = 50, 100
	life, retry, renew := 15*time.Second, 200*time.Millisecond, 10*time.Second
	many := true
	mgr, err := manager.New(rest, manager.Options{LeaderElection: true, LeaderElectionID: "publisher",
		LeaderElectionNamespace: "node-cert-agent", LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &life, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &many}})
	must.Do(c.t, err)
	nodes, err := fleet.Add(mgr)
	must.Do(c.t, err)
	must.Do(c.t, publisher.Add(mgr, publisher.Options{ControllerConfig: "machine-config-controller", Fleet: nodes,
		Changed: nodes.Changed()}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("the publisher ended: %v", err)
		}
	}
	c.t.Cleanup(stop)
	return stop
}

func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.Kubectl(c.t.Context(), args...)
	must.Do(c.t, err)
	return out
}

func (c *cluster) apply(manifests string) {
	c.t.Helper()
	must.Do(c.t, c.Apply(c.t.Context(), []byte(manifests)))
}

// configMap makes or changes one with the key ca.crt.
func (c *cluster) configMap(namespace, name string, data ...[]byte) {
	c.t.Helper()
	c.keyed("kind: ConfigMap, metadata: {name: %s, namespace: %s}, data: {ca.crt: %s}", namespace, name, data)
}

// secret makes one with the key ca.crt.
func (c *cluster) secret(namespace, name string, data ...[]byte) {
	c.t.Helper()
	c.keyed("kind: Secret, metadata: {name: %s, namespace: %s}, stringData: {ca.crt: %s}", namespace, name, data)
}

func (c *cluster) keyed(form, namespace, name string, data [][]byte) {
	c.t.Helper()
	text, err := json.Marshal(string(slices.Concat(data...)))
	must.Do(c.t, err)
	c.apply(fmt.Sprintf("{apiVersion: v1, "+form+"}", name, namespace, text))
}

// bundle makes a NodeBundle; its spec is in YAML.
func (c *cluster) bundle(name, spec string) {
	c.t.Helper()
	c.apply(fmt.Sprintf("{apiVersion: node-cert-agent.io/v1alpha1, kind: NodeBundle, "+
		"metadata: {name: %s}, spec: {%s}}", name, spec))
}

// from is the spec of a NodeBundle for a registry whose source is a ConfigMap of the namespace trust.
func from(registry, configMap string) string {
	return fmt.Sprintf("field: imageRegistryBundleData, registry: %q, "+
		"sources: [{configMap: {namespace: trust, name: %s, key: ca.crt}}]",
		registry, configMap)
}

// reports has the agent of a node say which certificates it has for a registry, and which version it followed.
func (c *cluster) reports(node, registry, version string, bundles ...[]byte) {
	c.t.Helper()
	var certificates []string
	for _, b := range bundles {
		for _, x := range pki.Read(b).Certs {
			certificates = append(certificates, x.Fingerprint.String())
		}
	}
	text, err := json.Marshal(certificates)
	must.Do(c.t, err)
	uid := c.kubectl("get", object, "-o", "jsonpath={.metadata.uid}")
	c.apply(fmt.Sprintf("{apiVersion: node-cert-agent.io/v1alpha1, kind: NodeCertificateState, metadata: {name: %s}}", node))
	c.kubectl("patch", "nodecertificatestate", node, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
		`{"status": {"state": "following", "synced": {"uid": %q, "resourceVersion": %q}, "fields": ["imageRegistryBundleData"], `+
			`"files": [{"field": "imageRegistryBundleData", "name": %q, "certificates": %s}]}}`, uid, version, registry, text))
}

// field is what the ControllerConfig has in a field that is no list.
func (c *cluster) field(name string) []byte {
	c.t.Helper()
	var o struct{ Spec map[string]json.RawMessage }
	must.Do(c.t, json.Unmarshal([]byte(c.kubectl("get", object, "-o", "json")), &o))
	var data []byte
	if o.Spec[name] != nil {
		must.Do(c.t, json.Unmarshal(o.Spec[name], &data))
	}
	return data
}

// registry is what the ControllerConfig has for one, by the name in the list.
func (c *cluster) registry(file string) []byte {
	c.t.Helper()
	var o struct {
		Spec struct {
			ImageRegistryBundleData []struct {
				File string
				Data []byte
			}
		}
	}
	must.Do(c.t, json.Unmarshal([]byte(c.kubectl("get", object, "-o", "json")), &o))
	for _, e := range o.Spec.ImageRegistryBundleData {
		if e.File == file {
			return e.Data
		}
	}
	return nil
}

// file is one with this text.
func (c *cluster) file(text string) string {
	path := filepath.Join(c.t.TempDir(), "manifest")
	must.Do(c.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func encoded(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// names are the common names of a bundle's certificates, in alphabetical order.
func names(data []byte) string {
	var all []string
	for _, x := range pki.Read(data).Certs {
		all = append(all, strings.TrimPrefix(x.Subject, "CN="))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// condition is the reason and the message of a condition of a NodeBundle.
func (c *cluster) condition(bundle, kind string) string {
	c.t.Helper()
	at := fmt.Sprintf(".status.conditions[?(@.type==%q)]", kind)
	return c.kubectl("get", "nodebundle", bundle, "-o", "jsonpath={"+at+".reason} {"+at+".message}")
}

// says waits until a condition begins with the words, and contains the other.
func (c *cluster) says(bundle, kind, begins, contains string) {
	c.t.Helper()
	last := ""
	c.until(fmt.Sprintf("%s of %s is %s with %q", kind, bundle, begins, contains), func() bool {
		last = c.condition(bundle, kind)
		return strings.HasPrefix(last, begins+" ") && strings.Contains(last, contains)
	}, &last)
}

// published waits until the registry has certificates of these names, and no others.
func (c *cluster) published(file, want string) {
	c.t.Helper()
	last := ""
	c.until(fmt.Sprintf("%s has %q", file, want), func() bool {
		last = names(c.registry(file))
		return last == want
	}, &last)
}

// event waits for one about a NodeBundle, of this reason and with these words.
func (c *cluster) event(bundle, reason, words string) {
	c.t.Helper()
	last := ""
	c.until(fmt.Sprintf("an event %s about %s with %q", reason, bundle, words), func() bool {
		last = c.kubectl("get", "events", "-n", "default",
			"--field-selector=involvedObject.name="+bundle+",reason="+reason, "-o", "jsonpath={.items[*].message}")
		return strings.Contains(last, words)
	}, &last)
}

// until tries again until it succeeds, where the outside tells nobody.
func (c *cluster) until(what string, try func() bool, last *string) {
	c.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(40 * time.Second)
	for !try() {
		select {
		case <-limit:
			c.t.Fatalf("not within 40 seconds: %s; last seen: %s", what, *last)
		case <-tick.C:
		}
	}
}
