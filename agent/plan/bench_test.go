// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// unchanged is a host with 12 CAs in the kubelet's bundle and 20 registries, on which everything is as
// the ControllerConfig wants it, and whose memory holds as many old holds as history says.
func unchanged(history int) Input {
	var ca []byte
	for range 12 {
		ca = append(ca, testpki.NewFrom(x509.Certificate{}, testpki.ECDSA).PEM()...)
	}
	kubelet, _ := policy.File(KubeAPIServerServingCAData)
	registries, _ := policy.File(ImageRegistryBundleData)
	e, err := kubelet.Entry("", ca, time.Time{})
	if err != nil {
		panic(err)
	}
	in := Input{Policy: policy, Desired: desired(e), Observed: disk(e), Known: known(e),
		Memory: Memory{Owned: map[string]Claim{}, Holds: map[HoldKey]Hold{}}, Now: Moment{Boot: "b", Uptime: time.Hour}}
	in.Policy.Trust.Hold = time.Hour
	for i := range 20 {
		r, err := registries.Entry(fmt.Sprintf("registry-%d.example.org:5000", i), ca, time.Time{})
		if err != nil {
			panic(err)
		}
		path, _ := registries.PathOf(r.Name)
		in.Desired.Entries, in.Observed[r.Key], in.Known[r.Digest] = append(in.Desired.Entries, r), file(r),
			pki.Content{Certs: r.Certs, Whole: true}
		in.Memory.Owned[path] = Claim{Key: r.Key, Digests: []Digest{r.Digest}}
	}
	in.Desired.Listed[ImageRegistryBundleData] = true
	for i := range history {
		in.Memory.Holds[HoldKey{Path: "/old", Cert: pki.Fingerprint(DigestOf([]byte{byte(i),
			byte(i >> 8)}))}] = Hold{Boot: "b"}
	}
	return in
}

// BenchmarkUnchanged is what a reconcile costs in decisions when nothing has happened; the budget is 1 ms.
func BenchmarkUnchanged(b *testing.B) {
	in := unchanged(0)
	b.ReportAllocs()
	for b.Loop() {
		if p := Compute(in); !p.Empty() {
			b.Fatal(p)
		}
	}
}
