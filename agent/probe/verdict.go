// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// sighting is what one handshake showed.
type sighting struct {
	// fault says why nothing was seen; it is empty if the server showed its certificate.
	fault string
	// asked tells whether the server asked for a client certificate, and names are the CAs it accepts.
	asked bool
	names [][]byte
	// chain is what the server served, leaf first, in DER.
	chain [][]byte
}

func unknown(reason string) liveness.ProbeResult {
	return liveness.ProbeResult{State: liveness.Unknown, Reason: reason}
}

func waiting(format string, args ...any) liveness.ProbeResult {
	return liveness.ProbeResult{State: liveness.Waiting, Reason: printable.Text(fmt.Sprintf(format, args...))}
}

// judge compares what was seen with what the file holds. It never says Stale: a consumer that does
// not show the bytes has not done so yet, and how long that may take is not the question here.
func judge(c liveness.Consumer, want liveness.ProbeTarget, s sighting, now time.Time) liveness.ProbeResult {
	if s.fault != "" {
		return unknown(s.fault)
	}
	switch c.Kind {
	case liveness.ClientCA:
		return judgeNames(c, want, s)
	case liveness.Serving:
		if len(want.Certs) > 0 && bytes.Equal(s.chain[0], want.Certs[0].DER()) {
			return liveness.ProbeResult{State: liveness.Live}
		}
		return waiting("serves another certificate than the file's")
	case liveness.APIServer:
		return judgeChain(want.Certs, s.chain, now)
	}
	return unknown("nobody knows how to ask")
}

// judgeNames compares names as a multiset: a bundle with two CAs of one name shows as that name twice,
// while one such CA in another's place shows as nothing at all.
func judgeNames(c liveness.Consumer, want liveness.ProbeTarget, s sighting) liveness.ProbeResult {
	switch {
	case !s.asked:
		return unknown("does not ask for client certificates")
	case len(s.names) == 0:
		return unknown("does not say which CAs it accepts")
	}
	names := subjects(want.Certs)
	rest, missing := subtract(s.names, names)
	if missing > 0 {
		return waiting("announces %d of the file's %d CAs", len(names)-missing, len(names))
	}
	if !c.Others && len(rest) > 0 {
		return waiting("announces %d CAs beside the file's %d", len(rest), len(names))
	}
	for _, older := range want.Older {
		gone, added := subtract(subjects(older), names)
		if len(gone) == 0 && added == 0 && differ(older, want.Certs) {
			return unknown("the file's CAs have the names of those before")
		}
		if _, absent := subtract(rest, gone); absent < len(gone) {
			return waiting("announces CAs that the file no longer holds")
		}
	}
	return liveness.ProbeResult{State: liveness.Live}
}

// judgeChain verifies as a client does that knows the server's name: which name that is depends on the
// client, and is none of the file's business.
func judgeChain(certs []pki.Cert, chain [][]byte, now time.Time) liveness.ProbeResult {
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return unknown("serves a certificate that does not parse")
	}
	opt := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now}
	for _, c := range certs {
		if root, err := x509.ParseCertificate(c.DER()); err == nil {
			opt.Roots.AddCert(root)
		}
	}
	for _, der := range chain[1:] {
		if between, err := x509.ParseCertificate(der); err == nil {
			opt.Intermediates.AddCert(between)
		}
	}
	if _, err := leaf.Verify(opt); err != nil {
		return waiting("the served certificate does not verify with the file: %v", err)
	}
	return liveness.ProbeResult{State: liveness.Live}
}

// subjects are the names as they stand in the certificates, bit by bit.
func subjects(certs []pki.Cert) (names [][]byte) {
	for _, c := range certs {
		if parsed, err := x509.ParseCertificate(c.DER()); err == nil {
			names = append(names, parsed.RawSubject)
		}
	}
	return names
}

// subtract takes each of b once out of a. It gives what is left of a, and how many of b were not there.
func subtract(a, b [][]byte) (rest [][]byte, missing int) {
	rest = slices.Clone(a)
	for _, name := range b {
		i := slices.IndexFunc(rest, func(n []byte) bool { return bytes.Equal(n, name) })
		if i < 0 {
			missing++
			continue
		}
		rest = slices.Delete(rest, i, i+1)
	}
	return rest, missing
}

func differ(a, b []pki.Cert) bool {
	added, removed := pki.Diff(a, b)
	return len(added)+len(removed) > 0
}
