// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// followed is a configuration for a kubelet that follows its file, as those of 1.36 do.
const followed = `apiVersion: config.node-cert-agent.io/v1alpha1
files:
  kubeAPIServerServingCAData: {verify: [{kind: clientCA, address: "127.0.0.1:10250"}]}
trust: {holdRemovals: 0s}
watch: {retryJitter: 200ms, retryMax: 1s}
`

func bundle(authorities ...*testpki.Authority) (b []byte) {
	for _, a := range authorities {
		b = append(b, a.PEM()...)
	}
	return b
}

// consumer is how the consumer at an address stands with the kubelet's CA file.
func (n *node) consumer(address string) (c report.Consumer) {
	for _, f := range n.Status().Files {
		for _, c := range f.Consumers {
			if f.Field == plan.KubeAPIServerServingCAData && c.Address == address {
				return c
			}
		}
	}
	return c
}

func (n *node) awaitUse(address string, want liveness.State) (c report.Consumer) {
	n.T.Helper()
	n.Await(address+" "+string(want), func() bool { c = n.consumer(address); return c.State == want })
	return c
}

// awaitAnswer waits until a server of the host answers a client of an authority so.
func (n *node) awaitAnswer(address, path string, by *testpki.Authority, want int) {
	n.T.Helper()
	client, got := by.Client("client", "system:masters"), 0
	n.Await("the answer to a client of "+by.Cert.Subject.String(), func() bool {
		got, _ = n.Ask(n.Ctx, address, path, client)
		return got == want
	})
}

func (n *node) awaitKubelet(by *testpki.Authority, want int) {
	n.T.Helper()
	n.awaitAnswer(cluster.KubeletAddress, "/healthz", by, want)
}

func (n *node) pid(unit string) string {
	n.T.Helper()
	return n.Run("systemctl", "show", "-P", "MainPID", unit)
}

func TestARunningKubeletTakesEachRotationAndStatusSaysSo(t *testing.T) {
	n := start(t, cluster.Options{Kubelet: true, Config: followed})
	a, b := testpki.New("a", testpki.ECDSA), testpki.New("b", testpki.ECDSA)
	n.create(kubeletCA(bundle(a)))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, bundle(a))
	n.Run("systemctl", "start", cluster.Kubelet)
	n.awaitKubelet(a, http.StatusOK)
	n.awaitKubelet(b, http.StatusUnauthorized)
	n.awaitUse(cluster.KubeletAddress, liveness.Live)
	pid := n.pid(cluster.Kubelet)

	quickest := time.Hour
	for _, rotation := range []struct {
		bundle   []byte
		accepted []*testpki.Authority
		refused  []*testpki.Authority
	}{
		{bundle(a, b), []*testpki.Authority{a, b}, nil},
		{bundle(b), []*testpki.Authority{b}, []*testpki.Authority{a}},
	} {
		n.patch(kubeletCA(rotation.bundle))
		n.AwaitFile(cluster.KubeletCA, rotation.bundle)
		for _, by := range rotation.accepted {
			n.awaitKubelet(by, http.StatusOK)
		}
		renamed, err := os.Stat(n.Host.Path(cluster.KubeletCA))
		n.Must(err)
		quickest = min(quickest, time.Since(renamed.ModTime()))
		for _, by := range rotation.refused {
			n.awaitKubelet(by, http.StatusUnauthorized)
		}
	}
	if t.Logf("accepted within %v of the rename", quickest); quickest > time.Second {
		t.Error("the kubelet takes longer than a second to accept a client of a new CA")
	}
	// It accepts a client at once, and announces the new list when it next looks, once a minute.
	n.AwaitRecord(audit.ConsumerLive, "NODECERT_AFTER="+plan.DigestOf(bundle(b)).String())
	n.awaitUse(cluster.KubeletAddress, liveness.Live)
	if out := n.Run("node-cert-agent", "status"); !strings.Contains(out, "in place, live") ||
		!strings.Contains(out, "clientCA 127.0.0.1:10250") {
		t.Errorf("status prints\n%s", out)
	}

	// Another CA of the same name looks the same from outside, and nobody says that it does not.
	b2 := testpki.New("b", testpki.ECDSA)
	n.patch(kubeletCA(bundle(b2)))
	n.awaitKubelet(b2, http.StatusOK)
	if c := n.awaitUse(cluster.KubeletAddress,
		liveness.Unknown); c.Reason != "the file's CAs have the names of those before" {
		t.Errorf("the kubelet is %+v", c)
	}
	if n.Records(audit.ConsumerStale) != 0 {
		t.Error("somebody was alarmed")
	}
	if now := n.pid(cluster.Kubelet); now != pid {
		t.Errorf("the kubelet's process was %s and is %s", pid, now)
	}
	if strings.Contains(n.Journal("-u", cluster.Kubelet, "-o", "cat"), "TLS handshake error") {
		t.Error("the kubelet complains about handshakes")
	}
}

func TestABrokenBundleNeverStopsTheNextStartOfTheKubelet(t *testing.T) {
	n := start(t, cluster.Options{Kubelet: true, Config: followed})
	a := testpki.New("a", testpki.ECDSA)
	n.create(kubeletCA(bundle(a)))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, bundle(a))
	for _, bad := range [][]byte{[]byte("certificate\n"), bundle(a)[:200], append(bundle(a), bundle(a)[:100]...)} {
		v := n.patch(kubeletCA(bad))
		n.Await("the refusal", func() bool {
			s := n.Status()
			return s.ControllerConfig.ResourceVersion == v &&
				len(s.Refused) == 1
		})
		n.wantFile(cluster.KubeletCA, bundle(a))
		n.Run("systemctl", "restart", cluster.Kubelet)
		n.awaitKubelet(a, http.StatusOK)
	}

	// That is not for nothing: this is what the kubelet makes of it.
	n.Run("systemctl", "stop", cluster.Kubelet, "node-cert-agent.service")
	n.Must(n.Host.PutFile(cluster.KubeletCA, host.File{Data: []byte("certificate\n")}))
	var failed *host.ExitError
	if _, err := n.Host.Run(n.Ctx, "systemctl", "start", cluster.Kubelet); !errors.As(err, &failed) {
		t.Errorf("a kubelet started with a broken file: %v", err)
	}
	n.Run("systemctl", "start", "node-cert-agent.service") // and ready: the file is healed
	n.wantFile(cluster.KubeletCA, bundle(a))
	n.Run("systemctl", "start", cluster.Kubelet)
	n.awaitKubelet(a, http.StatusOK)
	n.awaitUse(cluster.KubeletAddress, liveness.Live)
}
