// SPDX-License-Identifier: Apache-2.0

//go:build real

package publisher

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/objects"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

var (
	a, b, d = objects.CA("a"), objects.CA("b"), objects.CA("d")
	private = testpki.New("a", testpki.ECDSA).KeyPEM()
)

// grant lets the publisher read by name in the namespace trust, as an administrator would.
const grant = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: publisher, namespace: trust},
 rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]},
         {apiGroups: [""], resources: [secrets], resourceNames: [ca], verbs: [get, list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: publisher, namespace: trust},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: publisher},
 subjects: [{kind: ServiceAccount, name: node-cert-controller, namespace: node-cert-agent}]}
`

// TestPublishing tells one story after the other to one publisher, each with a field or registry of its own.
func TestPublishing(t *testing.T) {
	log, args := auditLog(t)
	args = append(args, "--feature-gates=ClusterTrustBundle=true",
		"--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true")
	c := start(t, controlplane.Options{APIServerArgs: args})
	c.install()
	c.apply("{apiVersion: v1, kind: Namespace, metadata: {name: trust}}")
	c.apply(grant)
	stop := c.publish()
	for _, story := range []struct {
		sentence string
		tell     func(*cluster)
	}{
		{"sources of every kind are published together", together},
		{"a source that goes bad leaves what was published, and says so", bad},
		{"a certificate that was dropped waits until the policy lets it go", dropped},
		{"all replaced at once waits until somebody names them", replaced},
		{"a field of another manager is not touched", conflict},
		{"of two for one registry the older is used", twice},
		{"objects of trust-manager and of the cluster itself are sources", foreign},
		{"a ClusterTrustBundle is a source where the kind is served", trustBundle},
		{"a namespace that is deleted takes nothing along", namespace},
		{"a Secret is read once its namespace allows it", secret},
		{"a deleted ControllerConfig is made again", again},
		{"what did not change is not written", quiet},
		{"a certificate goes when every node was asked and has what remains", gated},
		{"somebody with a reason lets a certificate go, and the audit log says so", forced(log)},
		{"a deadline that has passed is in the audit log", overdue(log)},
		{"a registry stays when its NodeBundle goes, until somebody takes it out", withdrawn},
		{"the schema refuses what makes no sense", schema},
	} {
		t.Run(story.sentence, func(t *testing.T) { story.tell(c.with(t)) })
	}
	t.Run("when one replica ends the other goes on", func(t *testing.T) {
		c := c.with(t)
		c.publish()
		stop()
		c.configMap("trust", "replicas", a)
		c.bundle("replicas", from("replicas", "replicas"))
		c.published("replicas", "a")
	})
}

func together(c *cluster) {
	c.configMap("trust", "together", a)
	c.secret("trust", "ca", b)
	c.bundle("together", fmt.Sprintf(`field: rootCAData, sources: [{inline: %q},
		{configMap: {namespace: trust, name: together, key: ca.crt}},
		{secret: {namespace: trust, name: ca, key: ca.crt}}]`, d))
	last := ""
	c.until("three certificates are published", func() bool {
		if !strings.Contains(c.condition("together", "Published"), "3 certificates") {
			return false
		}
		all := strings.Fields(names(c.field("rootCAData")))
		slices.Sort(all)
		last = strings.Join(all, " ")
		return last == "a b d"
	}, &last)
	row := strings.Fields(c.kubectl("get", "nodebundles", "together", "--no-headers"))
	if got, want := strings.Join(row[:5], " "), "together rootCAData Published 3 0/0"; got != want {
		c.t.Errorf("kubectl prints %q, want %q", got, want)
	}
}

func bad(c *cluster) {
	const key = "ConfigMap trust/bad key ca.crt"
	c.configMap("trust", "bad", a, b)
	c.bundle("bad", from("bad:5000", "bad")+", removal: {policy: Immediate}")
	c.published("bad..5000", "a b")
	for _, s := range []struct {
		reason, words string
		data          []byte
	}{
		{"SourceEmpty", "is empty", nil},
		{"SourceRefused", "holds no certificate", []byte("hello\n")},
		{"SourceRefused", "holds a private key", slices.Concat(a, private)},
		{"SourceRefused", "block 1 does not decode or is cut off", a[:len(a)-40]},
	} {
		c.configMap("trust", "bad", s.data)
		c.says("bad", "SourcesReady", s.reason, key+": ")
		c.says("bad", "SourcesReady", s.reason, s.words)
		c.event("bad", s.reason, key+": "+s.words)
		c.says("bad", "Published", "LastGood", key)
	}
	c.kubectl("delete", "configmap", "-n", "trust", "bad")
	c.says("bad", "SourcesReady", "SourceMissing", key+": does not exist")
	c.published("bad..5000", "a b")
	c.configMap("trust", "bad", a, b, d)
	c.published("bad..5000", "a b d")
	c.says("bad", "SourcesReady", "Ready", "")
	c.configMap("trust", "bad", d, a)
	c.published("bad..5000", "a d")
}

func dropped(c *cluster) {
	c.configMap("trust", "dropped", a, b)
	c.bundle("dropped", from("dropped", "dropped"))
	c.published("dropped", "a b")
	c.configMap("trust", "dropped", b)
	c.says("dropped", "Converged", "RemovalBlocked", "0 of 0 nodes have what remains")
	c.published("dropped", "a b")
	if held := c.kubectl("get", "nodebundle", "dropped", "-o", "jsonpath={.status.counts.held}"); held != "1" {
		c.t.Errorf("%s are held", held)
	}
	c.kubectl("patch", "nodebundle", "dropped", "--type=merge", "-p", `{"spec":{"removal":{"policy":"Hold","hold":"1s"}}}`)
	c.published("dropped", "b")
	c.event("dropped", "Removed", "sha256:")
	c.says("dropped", "Converged", "Converged", "")
}

// gated: n2 is off while the new CA comes, and has not got it when the old one goes from the source.
func gated(c *cluster) {
	c.configMap("trust", "gated", a, b)
	c.bundle("gated", from("gated", "gated"))
	c.published("gated", "a b")
	for _, node := range []string{"n1", "n2"} {
		c.apply("{apiVersion: v1, kind: Node, metadata: {name: " + node + "}}")
	}
	c.reports("n1", "gated", "1", a, b)
	c.reports("n2", "gated", "1", a)
	c.configMap("trust", "gated", b)
	c.says("gated", "Converged", "RemovalBlocked", "n1 has not reported since it was asked, n2 has")
	asked := c.kubectl("get", "nodebundle", "gated", "-o", "jsonpath={.status.asked.resourceVersion}")
	c.reports("n1", "gated", asked, a, b)
	c.says("gated", "Converged", "RemovalBlocked", "1 of 2 nodes have what remains; n2 has not reported")
	c.reports("n2", "gated", asked, a)
	c.says("gated", "Converged", "RemovalBlocked", "1 of 2 nodes have what remains; n2 lacks sha256:")
	out, err := c.as("alice")("Which node keeps a certificate", 0, "NAME", "gated")
	if rows := strings.Split(strings.TrimSpace(out), "\n"); err != nil || len(rows) != 1 ||
		!strings.HasPrefix(out, "n2\t") || !strings.Contains(out, "\tlacks sha256:") {
		c.t.Errorf("who keeps it: %v\n%s", err, out)
	}
	c.published("gated", "a b")
	c.reports("n2", "gated", asked, a, b)
	c.published("gated", "b")
	c.says("gated", "Converged", "Converged", "")
	c.kubectl("delete", "nodes,nodecertificatestates", "n1", "n2")
}

func replaced(c *cluster) {
	c.configMap("trust", "replaced", a)
	c.bundle("replaced", from("replaced", "replaced")+", removal: {policy: Immediate}")
	c.published("replaced", "a")
	c.configMap("trust", "replaced", b)
	c.published("replaced", "a b")
	c.says("replaced", "Converged", "ReplacedAtOnce", "")
	c.event("replaced", "ReplacedAtOnce", "node-cert-agent.io/replaced")
	held := c.kubectl("get", "nodebundle", "replaced", "-o", "jsonpath={.status.certificates[?(@.replaced)].sha256}")
	out, err := c.as("alice")("Which node keeps a certificate", 1, "NAME", "replaced",
		"sha256:FINGERPRINT,sha256:FINGERPRINT", "sha256:"+held)
	if err != nil {
		c.t.Fatalf("naming what may go: %v\n%s", err, out)
	}
	c.published("replaced", "b")
}

func conflict(c *cluster) {
	const theirs = `{apiVersion: node-cert-agent.io/v1alpha1, kind: ControllerConfig,
		metadata: {name: machine-config-controller}, spec: {%s}}`
	write := func(spec string) {
		c.kubectl("apply", "--server-side", "--field-manager=somebody", "-f", c.file(fmt.Sprintf(theirs, spec)))
	}
	write("cloudProviderCAData: " + encoded(a))
	c.bundle("conflict", fmt.Sprintf("field: cloudProviderCAData, sources: [{inline: %q}]", b))
	c.says("conflict", "Published", "Conflict", `"somebody"`)
	c.event("conflict", "Conflict", `"somebody"`)
	if !bytes.Equal(c.field("cloudProviderCAData"), a) {
		c.t.Errorf("the field has %s", names(c.field("cloudProviderCAData")))
	}
	write("")
	c.says("conflict", "Published", "Published", "1 certificates")
	if got := names(c.field("cloudProviderCAData")); got != "b" {
		c.t.Errorf("the field has %q", got)
	}
	if got := names(c.field("rootCAData")); len(strings.Fields(got)) != 3 {
		c.t.Errorf("the other field has %q", got)
	}
}

func twice(c *cluster) {
	c.configMap("trust", "twice", a)
	c.configMap("trust", "other", b)
	c.bundle("twice-z", from("twice:443", "twice"))
	c.published("twice..443", "a")
	c.kubectl("wait", "nodebundle/twice-z", "--for=condition=Published", "--timeout=40s")
	c.bundle("twice-a", from("twice..443", "other"))
	c.says("twice-a", "Published", "Duplicate", "older NodeBundle twice-")
}

func foreign(c *cluster) {
	text := strings.ReplaceAll(string(a), "\n", `\n`)
	c.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: corporate, namespace: trust,
		labels: {trust.cert-manager.io/bundle: corporate}, annotations: {trust.cert-manager.io/hash: x},
		ownerReferences: [{apiVersion: trust.cert-manager.io/v1alpha1, kind: Bundle, name: corporate, controller: true,
		blockOwnerDeletion: true, uid: 5b2a4c1e-0000-4000-8000-000000000000}]}, data: {ca.crt: "` + text + `"}}`)
	c.bundle("corporate", from("corporate", "corporate"))
	c.published("corporate", "a")
	c.apply(c.block("The first NodeBundle", 0))
	c.bundle("own", `field: imageRegistryBundleData, registry: own, sources: [
		{configMap: {namespace: kube-system, name: kube-root-ca.crt, key: ca.crt}}]`)
	c.published("own", "kubernetes")
	c.says("kubelet-clients", "Published", "Published", "1 certificates")
	columns := strings.Fields(strings.Split(c.block("The first NodeBundle", 1), "\n")[1])
	if got := strings.Fields(c.kubectl("get", "nodebundles"))[:len(columns)]; !slices.Equal(got, columns) {
		c.t.Errorf("kubectl prints the columns %q, the page has %q", got, columns)
	}
	if got := c.field("kubeAPIServerServingCAData"); !bytes.Equal(got, c.CA().PEM()) {
		c.t.Errorf("the field has %q", names(got))
	}
}

func trustBundle(c *cluster) {
	write := func(data ...[]byte) {
		text := strings.ReplaceAll(string(slices.Concat(data...)), "\n", `\n`)
		c.apply(`{apiVersion: certificates.k8s.io/v1beta1, kind: ClusterTrustBundle, metadata: {name: bundled},
			spec: {trustBundle: "` + text + `"}}`)
	}
	write(a)
	c.bundle("bundled", "field: imageRegistryBundleData, registry: bundled, "+
		"sources: [{clusterTrustBundle: {name: bundled}}], removal: {policy: Immediate}")
	c.published("bundled", "a")
	write(a, b)
	c.published("bundled", "a b")
	write(b)
	c.published("bundled", "b")
	c.kubectl("delete", "clustertrustbundle", "bundled")
	c.says("bundled", "SourcesReady", "SourceMissing", "ClusterTrustBundle bundled: does not exist")
	c.published("bundled", "b")
}

// withdrawn: what a NodeBundle published stays without it. Whoever takes it out is no conflict for the others.
func withdrawn(c *cluster) {
	const file = "registry.example.com..5000"
	c.configMap("trust", "registry-ca", a)
	c.apply("apiVersion: node-cert-agent.io/v1alpha1\nkind: NodeBundle\nmetadata: {name: withdrawn}\n" +
		c.block("Registries", 0))
	c.published(file, "a")
	c.kubectl("delete", "nodebundle", "withdrawn")
	c.configMap("trust", "quiet", a, b)
	c.published("quiet", "a b")
	c.published(file, "a")
	if out, err := c.as("alice")("Registries", 1, "REGISTRY", file); err != nil {
		c.t.Fatalf("taking it out: %v\n%s", err, out)
	}
	if got := c.registry(file); got != nil {
		c.t.Errorf("the list still has it: %s", names(got))
	}
	c.configMap("trust", "quiet", a, b, d)
	c.published("quiet", "a b d")
	c.says("quiet", "Published", "Published", "3 certificates")
	if got := c.registry(file); got != nil {
		c.t.Errorf("it is back: %s", names(got))
	}
}

func namespace(c *cluster) {
	c.apply("{apiVersion: v1, kind: Namespace, metadata: {name: leaving}}")
	c.apply(strings.ReplaceAll(grant, "namespace: trust", "namespace: leaving"))
	c.configMap("leaving", "ca", a)
	c.bundle("leaving", strings.ReplaceAll(from("leaving", "ca"), "namespace: trust", "namespace: leaving"))
	c.published("leaving", "a")
	c.kubectl("delete", "namespace", "leaving")
	c.says("leaving", "Published", "LastGood", "ConfigMap leaving/ca")
	c.published("leaving", "a")
}

func secret(c *cluster) {
	c.secret("trust", "corporate-ca", a)
	c.bundle("closed", "field: imageRegistryBundleData, registry: closed, "+
		"sources: [{secret: {namespace: trust, name: corporate-ca, key: ca.crt}}]")
	c.says("closed", "SourcesReady", "SourceUnreadable",
		"Secret trust/corporate-ca key ca.crt: the publisher has no right to read it")
	c.says("closed", "Published", "NothingToPublish", "")
	c.apply(c.block("Sources", 0))
	c.published("closed", "a")
}

func again(c *cluster) {
	before := c.field("rootCAData")
	c.kubectl("delete", object)
	c.until("the ControllerConfig is there again", func() bool {
		_, err := c.Kubectl(c.t.Context(), "get", object)
		return err == nil
	}, new(string))
	got := ""
	c.until("the field has what it had", func() bool {
		got = names(c.field("rootCAData"))
		return len(c.field("rootCAData")) == len(before)
	}, &got)
	c.published("corporate", "a")
}

func quiet(c *cluster) {
	version := func() string { return c.kubectl("get", object, "-o", "jsonpath={.metadata.resourceVersion}") }
	c.configMap("trust", "quiet", a)
	c.bundle("quiet", from("quiet", "quiet"))
	c.published("quiet", "a")
	c.says("quiet", "Published", "Published", "")
	before := version()
	c.kubectl("annotate", "configmap", "-n", "trust", "quiet", "touched=yes")
	c.kubectl("patch", "nodebundle", "quiet", "--type=merge", "-p", `{"spec":{"removal":{"policy":"Immediate"}}}`)
	generation := ""
	c.until("the new policy was looked at", func() bool {
		generation = c.kubectl("get", "nodebundle", "quiet", "-o",
			"jsonpath={.status.observedGeneration} {.metadata.generation}")
		return generation == "2 2"
	}, &generation)
	if after := version(); after != before {
		c.t.Errorf("the ControllerConfig went from version %s to %s", before, after)
	}
}

func schema(c *cluster) {
	const source = ", sources: [{inline: x}]"
	for spec, want := range map[string]string{
		"field: internalRegistryPullSecret" + source:                               "Unsupported value",
		"field: imageRegistryBundleData" + source:                                  "registry belongs to",
		"field: rootCAData, registry: r" + source:                                  "registry belongs to",
		"field: rootCAData, sources: []":                                           "at least 1 items",
		"field: rootCAData, sources: [{}]":                                         "exactly one of the fields",
		"field: rootCAData, removal: {policy: Hold}" + source:                      "hold belongs to",
		"field: rootCAData, removal: {hold: 1h}" + source:                          "hold belongs to",
		"field: rootCAData, removal: {deadline: soon}" + source:                    "should match",
		"field: rootCAData, removal: {ignoreNodes: {}}" + source:                   "would ignore every node",
		"field: rootCAData, sources: [{inline: x, clusterTrustBundle: {name: t}}]": "exactly one of the fields",
		"field: rootCAData, removal: {policy: Immediate, deadline: 1h}" + source:   "deadline belongs to",
	} {
		err := c.Apply(c.t.Context(), fmt.Appendf(nil,
			"{apiVersion: node-cert-agent.io/v1alpha1, kind: NodeBundle, metadata: {name: odd}, spec: {%s}}", spec))
		if err == nil || !strings.Contains(err.Error(), want) {
			c.t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	_, err := c.Kubectl(c.t.Context(), "patch", "nodebundle", "quiet", "--type=merge", "-p",
		`{"spec":{"registry":"other"}}`)
	if err == nil || !strings.Contains(err.Error(), "cannot be changed") {
		c.t.Errorf("another registry: %v", err)
	}
	text := c.kubectl("explain", "nodebundle.spec.removal.policy")
	if !strings.Contains(text, "waits until every node that counts") {
		c.t.Errorf("kubectl explains %s", text)
	}
}
