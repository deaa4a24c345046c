// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// An empty set of CAs must not become the host's own.
func TestWithoutACANoServerIsVerified(t *testing.T) {
	c, err := Cluster{Server: "https://127.0.0.1:1"}.Config(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	secure, err := c.tls()
	if err != nil || secure.RootCAs == nil || !secure.RootCAs.Equal(x509.NewCertPool()) || secure.InsecureSkipVerify ||
		secure.MinVersion < tls.VersionTLS12 {
		t.Errorf("%+v, %v", secure, err)
	}
}

func TestClusterInfoIsReadAsKubeadmWritesIt(t *testing.T) {
	one, two := testpki.NewCA("one"), testpki.NewCA("two")
	text := base64.StdEncoding.EncodeToString
	for sentence, c := range map[string]struct {
		kubeconfig string
		want       []byte
	}{
		"one cluster, as kubeadm": {"apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: " + text(one) +
			"\n    server: https://x:6443\n  name: \"\"\n", one},
		"two clusters": {"clusters:\n- cluster:\n    certificate-authority-data: " + text(one) +
			"\n- cluster:\n    certificate-authority-data: " + text(two) + "\n", slices.Concat(one, two)},
		"the first of the list": {"clusters:\n- certificate-authority-data: " + text(one), one},
		"in quotes":             {"  certificate-authority-data: \"" + text(one) + "\"\r\n", one},
		"without any":           {"clusters: []\n", nil},
		"what is no base64":     {"certificate-authority-data: [a, b]\ncertificate-authority-data: " + text(one), one},
		"in flow style":         {"clusters:\n- {name: x, cluster: {server: \"https://x:6443\", certificate-authority-data: " + text(one) + "}}\n", one},
		"as JSON":               {`{"clusters":[{"cluster":{"certificate-authority-data":"` + text(one) + `"}}]}`, one},
	} {
		answer, _ := json.Marshal(map[string]any{"data": map[string]any{"kubeconfig": c.kubeconfig}})
		if got := authorities(clusterInfo(answer)); !slices.EqualFunc(got, authorities(c.want), (*x509.Certificate).Equal) {
			t.Errorf("%s: %d CAs", sentence, len(got))
		}
	}
}

// bombs are answers by which a stranger would have the agent take memory.
func bombs(size int) (out [][]byte) {
	for _, part := range []string{"a,", "[", "{", "- ", "a: &a [*a,", "? ", "certificate-authority-data: aGk=\\n",
		"certificate-authority-data: ", "\\n", "&a a,"} {
		text := strings.Repeat(part, size/len(part))
		out = append(out, []byte(`{"data":{"kubeconfig":"{`+text+`"}}`), []byte(`{"data":{"kubeconfig":"[`+text+`"}}`),
			[]byte(`{"data":{`+text))
	}
	return append(out, bytes.Repeat([]byte(`{"data":`), size/8), bytes.Repeat([]byte(`[`), size),
		bytes.Repeat([]byte(`{"a":[{},`), size/9))
}

// allocated is what f allocates, in bytes, freed or not.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// mostForClusterInfo, in bytes, is what an answer may cost: the agent has 128 MiB in all.
const mostForClusterInfo = 4 << 20

func TestAStrangersClusterInfoCostsLittle(t *testing.T) {
	for _, answer := range bombs(1<<20 - 64) {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) }))
		sum := sha256.Sum256(s.Certificate().RawSubjectPublicKeyInfo)
		pins := ParsePins([]string{"sha256:" + hex.EncodeToString(sum[:])})
		if cost := allocated(func() {
			_, _, _ = pins.Discover(t.Context(), Cluster{Server: s.URL}, nil)
		}); cost > mostForClusterInfo {
			t.Errorf("%.40q: %d bytes", answer, cost)
		}
		s.Close()
	}
}

func TestAStrangersHeaderIsNotReadToItsEnd(t *testing.T) {
	for _, second := range []bool{false, true} { // HTTP/2
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 256<<10))
		}))
		s.EnableHTTP2 = second
		s.StartTLS()
		_, err := ask(t.Context(), Cluster{Server: s.URL}, nil)
		if err == nil {
			t.Errorf("HTTP/2 %v: all of it was read", second)
		}
		s.Close()
	}
}

// FuzzClusterInfo holds that whatever a stranger answers, it costs little, and gives certificates or nothing.
func FuzzClusterInfo(f *testing.F) {
	f.Add([]byte(`{"data":{"kubeconfig":"clusters: [{cluster: {certificate-authority-data: aGk=}}]"}}`))
	f.Add([]byte(`{"data":{"kubeconfig":"clusters: &a [*a]"}}`))
	for _, bomb := range bombs(1 << 10) {
		f.Add(bomb)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = data[:min(len(data), maxClusterInfo)]
		if cost := allocated(func() { authorities(clusterInfo(data)) }); cost > mostForClusterInfo {
			t.Errorf("%d bytes cost %d", len(data), cost)
		}
	})
}
