// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// epoch is the true time at which every walk begins.
var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// authority is one CA of the walks. Its letter names it in traces.
type authority struct {
	letter string
	cert   pki.Cert
}

// The last two authorities are special: one expires during most walks, one did before.
const (
	lasting  = 8
	expiring = lasting
	expired  = lasting + 1
)

// authorities are the same in every run: they are made from fixed keys. Two have the same subject.
var authorities = makeAuthorities()

func makeAuthorities() (all []authority) {
	for i := range lasting + 2 {
		from, until, name := epoch.Add(-time.Hour), epoch.Add(20000*time.Hour), fmt.Sprint("authority ", i)
		switch i {
		case 1:
			name = "authority 0"
		case expiring:
			until = epoch.Add(3 * time.Hour)
		case expired:
			from, until = epoch.Add(-50*time.Hour), epoch.Add(-time.Hour)
		}
		all = append(all, authority{letter: string(rune('A' + i)), cert: makeAuthority(i, name, from, until)})
	}
	return all
}

func makeAuthority(i int, name string, from, until time.Time) pki.Cert {
	seed := sha256.Sum256(fmt.Appendf(nil, "simulate %d", i))
	key := ed25519.NewKeyFromSeed(seed[:])
	t := x509.Certificate{SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name}, NotBefore: from,
		NotAfter: until,
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(nil, &t, &t, key.Public(), key)
	if err != nil {
		panic(err)
	}
	b, err := pki.Parse(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pki.Options{})
	if err != nil {
		panic(err)
	}
	return b.Certs[0]
}

// bundle is the authorities in that order, as PEM.
func bundle(which []int) (data []byte) {
	for _, i := range which {
		data = append(data, authorities[i].cert.PEM()...)
	}
	return data
}

// letters names authorities for people.
func letters(which []int) string {
	var b strings.Builder
	for _, i := range which {
		b.WriteString(authorities[i].letter)
	}
	return b.String()
}

// indexOf finds an authority, or gives -1.
func indexOf(fp pki.Fingerprint) int {
	return slices.IndexFunc(authorities, func(a authority) bool { return a.cert.Fingerprint == fp })
}

// content is what the simulator knows of a file's bytes.
type content struct {
	digest plan.Digest
	// whole is set if it is a valid bundle, and holds are the authorities that can be read in it.
	whole bool
	holds []int
	// id is the same for two contents that mean the same to a consumer.
	id string
}

// contents remembers what was read once: walks use few bundles again and again. It is for all workers.
var contents sync.Map // of string to *content

func contentOf(data []byte) *content {
	if c, ok := contents.Load(string(data)); ok {
		return c.(*content)
	}
	read := pki.Read(data)
	c := &content{digest: plan.DigestOf(data), whole: read.Whole}
	for _, x := range read.Certs {
		c.holds = append(c.holds, indexOf(x.Fingerprint))
	}
	if c.id = c.digest.String(); c.whole {
		set := slices.Sorted(slices.Values(c.holds))
		c.id = letters(set)
	}
	contents.Store(string(data), c)
	return c
}

func (c *content) has(i int) bool { return c != nil && slices.Contains(c.holds, i) }

// String is the letters of the authorities, with a mark if there is anything else.
func (c *content) String() string {
	if c == nil {
		return "no file"
	}
	if !c.whole {
		return "junk with [" + letters(c.holds) + "]"
	}
	return letters(c.holds)
}
