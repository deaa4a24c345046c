// SPDX-License-Identifier: Apache-2.0

//go:build real

package clusterapi

import (
	"fmt"
	"strings"
	"testing"
)

const (
	soon  = "2031-01-01T00:00:00Z"
	march = "2031-03-01T00:00:00Z"
	april = "2031-04-01T00:00:00Z"
)

// TestClusterAPI tells one story after the other to one controller, each in a namespace of its own.
func TestClusterAPI(t *testing.T) {
	m := start(t)
	m.run()
	for i, story := range []struct {
		sentence string
		tell     func(m *management, namespace string)
	}{
		{"the Machine states the first end that nobody renews, moves it on, and takes it back", states},
		{"what a person wrote stays until he removes it", foreign},
		{"a node without a state is said, and the others go on", missing},
		{"a cluster that does not answer is said, and the others go on", away},
		{"a kubeconfig with a program is refused, and nothing runs", program},
		{"the pair for etcd is renewed in time, and no Machine is touched", renewed},
		{"a pair ends with the CA of etcd", short},
		{"a CA that cannot sign is said", unfit},
		{"with a Role by name the rest of the namespace stays closed", narrow},
		{"a namespace that grants nothing is left alone", closed},
		{"a paused Cluster is left alone", paused},
		{"the policies refuse what a stolen credential would write", fenced},
	} {
		t.Run(story.sentence, func(t *testing.T) { story.tell(m.with(t), fmt.Sprintf("n%d", i)) })
	}
}

func states(m *management, ns string) {
	m.granted(ns)
	m.cluster(ns, "c1", m.credentials())
	m.machine(ns, "c1", "states-1")
	m.reports("states-1", march, soon)
	m.has(ns, "states-1", march)
	m.event(ns, "states-1", "ExpiryStated", march)
	m.reports("states-1", "", april) // the host renews everything
	m.has(ns, "states-1", april)
	if got := m.block("See what it does", 0, "NAMESPACE", ns); !strings.Contains(got, "states-1   "+april) ||
		!strings.Contains(got, "ExpiryStated") {
		m.t.Errorf("the page shows %s", got)
	}
	m.report("states-1", nil)
	m.has(ns, "states-1", "")
	m.event(ns, "states-1", "ExpiryWithdrawn", "Cluster API goes by its own date")
}

func foreign(m *management, ns string) {
	m.granted(ns)
	m.cluster(ns, "c1", m.credentials())
	m.machine(ns, "c1", "foreign-1")
	m.reports("foreign-1", march, march)
	m.has(ns, "foreign-1", march)
	m.block("State another date yourself", 0, "NAMESPACE", ns, "MACHINE", "foreign-1")
	m.reports("foreign-1", april, april)
	m.event(ns, "foreign-1", "AnnotationOfOthers", "somebody else set machine.cluster.x-k8s.io/certificates-expiry")
	m.has(ns, "foreign-1", "2030-01-01T00:00:00Z")
	m.block("State another date yourself", 1, "NAMESPACE", ns, "MACHINE", "foreign-1")
	m.has(ns, "foreign-1", april)
}

func missing(m *management, ns string) {
	m.granted(ns)
	m.cluster(ns, "c1", m.credentials())
	m.machine(ns, "c1", "missing-1")
	m.machine(ns, "c1", "missing-2")
	m.reports("missing-2", march, march)
	m.has(ns, "missing-2", march)
	m.event(ns, "missing-1", "NoState", "no NodeCertificateState")
	m.has(ns, "missing-1", "")
}

func away(m *management, ns string) {
	m.granted(ns)
	nobody := strings.Replace(string(m.credentials()), m.URL(), "https://127.0.0.1:1", 1)
	m.cluster(ns, "a-away", []byte(nobody))
	m.machine(ns, "a-away", "away-1")
	m.cluster(ns, "b-there", m.credentials())
	m.machine(ns, "b-there", "there-1")
	m.reports("away-1", march, march)
	m.reports("there-1", march, march)
	m.has(ns, "there-1", march)
	m.event(ns, "a-away", "WorkloadClusterUnreachable", "connection refused")
	m.has(ns, "away-1", "")
	m.secret(ns, "a-away-kubeconfig", map[string][]byte{"value": m.credentials()})
	m.has(ns, "away-1", march)
}

func program(m *management, ns string) {
	m.granted(ns)
	trace := m.t.TempDir() + "/ran"
	text := strings.Replace(string(m.credentials()), "  user:\n    client-certificate-data",
		"  user:\n    exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: ["+trace+
			"], interactiveMode: Never}\n    client-certificate-data", 1)
	m.cluster(ns, "c1", []byte(text))
	m.machine(ns, "c1", "program-1")
	m.reports("program-1", march, march)
	m.event(ns, "c1", "KubeconfigRefused", "more than servers, CAs, client certificates and keys")
	m.has(ns, "program-1", "")
	absent(m.t, trace)
}

func narrow(m *management, ns string) {
	m.apply(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", ns))
	m.apply(strings.NewReplacer("NAMESPACE", ns, "CLUSTER", "c1").Replace(m.text("Grant a namespace", 1)))
	m.cluster(ns, "c1", m.credentials())
	m.machine(ns, "c1", "narrow-1")
	m.reports("narrow-1", march, march)
	m.has(ns, "narrow-1", march)
	m.renewable(ns, "c1")
	m.event(ns, "c1", "EtcdClientRenewed", "no machine was replaced")
	for name, want := range map[string]bool{"c1-etcd": true, "c2-etcd": false} {
		got, err := m.Kubectl(m.t.Context(), "auth", "can-i", "get", "secret/"+name, "-n", ns, "--as", account)
		if may := strings.TrimSpace(got) == "yes" && err == nil; may != want {
			m.t.Errorf("may it read %s: %s, %v", name, got, err)
		}
	}
}

func closed(m *management, ns string) {
	m.apply(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", ns))
	m.cluster(ns, "c1", m.credentials())
	m.machine(ns, "c1", "closed-1")
	m.reports("closed-1", march, march)
	m.others(ns)
	m.has(ns, "closed-1", "")
	m.block("Grant a namespace", 0, "NAMESPACE", ns)
	m.has(ns, "closed-1", march)
}

func paused(m *management, ns string) {
	m.granted(ns)
	m.cluster(ns, "c1", m.credentials())
	m.kubectl("patch", "cluster.cluster.x-k8s.io", "-n", ns, "c1", "--type=merge", "-p", `{"spec":{"paused":true}}`)
	m.machine(ns, "c1", "paused-1")
	m.reports("paused-1", march, march)
	m.others(ns)
	m.has(ns, "paused-1", "")
	m.kubectl("patch", "cluster.cluster.x-k8s.io", "-n", ns, "c1", "--type=merge", "-p", `{"spec":{"paused":false}}`)
	m.has(ns, "paused-1", march)
}

// others waits until a Cluster that was made after the others of a test was looked at twice.
func (m *management) others(ns string) {
	m.t.Helper()
	m.granted(ns + "-others")
	m.cluster(ns+"-others", "z", m.credentials())
	m.machine(ns+"-others", "z", ns+"-others-1")
	for _, date := range []string{march, april} {
		m.reports(ns+"-others-1", date, date)
		m.has(ns+"-others", ns+"-others-1", date)
	}
}
