// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

var (
	a  = testpki.New("a", testpki.ECDSA)
	b  = testpki.New("b", testpki.ECDSA)
	fp = testpki.New("front-proxy", testpki.ECDSA)
	// Another key under the same name.
	a2 = testpki.New("a", testpki.ECDSA)
)

func bundle(authorities ...*testpki.Authority) (certs []pki.Cert) {
	for _, a := range authorities {
		parsed, err := pki.Parse(a.PEM(), pki.Options{})
		if err != nil {
			panic(err)
		}
		certs = append(certs, parsed.Certs...)
	}
	return certs
}

func announces(authorities ...*testpki.Authority) sighting {
	s := sighting{asked: true, chain: [][]byte{nil}}
	for _, a := range authorities {
		s.names = append(s.names, a.Cert.RawSubject)
	}
	return s
}

type (
	cas  = []*testpki.Authority
	past = [][]pki.Cert
)

func TestAServerIsJudgedByTheNamesItAnnounces(t *testing.T) {
	one, others := liveness.Consumer{Kind: liveness.ClientCA}, liveness.Consumer{Kind: liveness.ClientCA, Others: true}
	for sentence, c := range map[string]struct {
		consumer liveness.Consumer
		want     cas
		older    past
		seen     sighting
		state    liveness.State
		reason   string
	}{
		"the names of the file are live": {one, cas{a, b}, nil, announces(a, b), liveness.Live, ""},
		"their order does not matter":    {one, cas{a, b}, nil, announces(b, a), liveness.Live, ""},
		"a name that is missing is not there yet": {one, cas{a, b}, past{bundle(a)}, announces(a),
			liveness.Waiting, "announces 1 of the file's 2 CAs"},
		"a name too many is not gone yet": {one, cas{a}, past{bundle(a, b)}, announces(a, b),
			liveness.Waiting, "announces 1 CAs beside the file's 1"},
		"a second CA of a name counts": {one, cas{a, a2}, past{bundle(a)}, announces(a),
			liveness.Waiting, "announces 1 of the file's 2 CAs"},
		"and is seen when it is there": {one, cas{a, a2}, past{bundle(a)}, announces(a, a2),
			liveness.Live, ""},
		"another CA of the same name cannot be told from it": {one, cas{a2}, past{bundle(a)}, announces(a),
			liveness.Unknown, "the file's CAs have the names of those before"},
		"it can be told by what came with it": {one, cas{a2, b}, past{bundle(a)}, announces(a, b),
			liveness.Live, ""},
		"the same CA again is no change that could be missed": {one, cas{a}, past{bundle(a)}, announces(a),
			liveness.Live, ""},
		"a change since the last proof may have been missed too": {one, cas{a2}, past{bundle(a), bundle(b)}, announces(a),
			liveness.Unknown, "the file's CAs have the names of those before"},
		"the names of other files may stand beside": {others, cas{a, b}, past{bundle(a)}, announces(a, fp, b),
			liveness.Live, ""},
		"but not in the place of the file's": {others, cas{a, b}, past{bundle(a)}, announces(a, fp),
			liveness.Waiting, "announces 1 of the file's 2 CAs"},
		"nor may names that the file held": {others, cas{a}, past{bundle(a, b)}, announces(a, fp, b),
			liveness.Waiting, "announces CAs that the file no longer holds"},
		"not even from before the last change": {others, cas{a}, past{bundle(a, b), bundle(a)},
			announces(a, fp, b), liveness.Waiting, "announces CAs that the file no longer holds"},
		"who does not ask for certificates cannot be judged": {one, cas{a}, nil, sighting{chain: [][]byte{nil}},
			liveness.Unknown, "does not ask for client certificates"},
		"who names no CAs cannot be judged": {one, cas{a}, nil, announces(), liveness.Unknown,
			"does not say which CAs it accepts"},
		"who is not there cannot be judged": {one, cas{a}, nil,
			sighting{fault: "nothing listens there"}, liveness.Unknown, "nothing listens there"},
		"a question that this version does not know has no answer": {liveness.Consumer{Kind: "what"}, cas{a}, nil,
			announces(a), liveness.Unknown, "nobody knows how to ask"},
	} {
		got := judge(c.consumer, liveness.ProbeTarget{Certs: bundle(c.want...), Older: c.older}, c.seen, time.Now())
		if got != (liveness.ProbeResult{State: c.state, Reason: c.reason}) {
			t.Errorf("%s: got %+v, want %s %q", sentence, got, c.state, c.reason)
		}
	}
}

// serving is the DER of a serving certificate, and its chain's.
func serving(by *testpki.Authority, chain ...*testpki.Authority) sighting {
	block, _ := pem.Decode(by.Issue(x509.Certificate{Subject: pkix.Name{CommonName: "s"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}).Cert)
	s := sighting{chain: [][]byte{block.Bytes}}
	for _, c := range chain {
		s.chain = append(s.chain, c.Cert.Raw)
	}
	return s
}

func TestAServedChainHasToVerifyWithTheFile(t *testing.T) {
	expired := testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "old"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}, testpki.ECDSA)
	for sentence, c := range map[string]struct {
		want  cas
		seen  sighting
		state liveness.State
	}{
		"issued by a root of the file":        {cas{a, b}, serving(a), liveness.Live},
		"issued by another":                   {cas{b}, serving(a), liveness.Waiting},
		"issued by another of the same name":  {cas{a2}, serving(a), liveness.Waiting},
		"a served root is no root":            {cas{b}, serving(a, a), liveness.Waiting},
		"issued by one that has expired":      {cas{expired}, serving(expired), liveness.Waiting},
		"what does not parse proves nothing":  {cas{a}, sighting{chain: [][]byte{{1}}}, liveness.Unknown},
		"what comes along need not parse too": {cas{a}, sighting{chain: append(serving(a).chain, []byte{1})}, liveness.Live},
	} {
		got := judge(liveness.Consumer{Kind: liveness.APIServer}, liveness.ProbeTarget{Certs: bundle(c.want...)}, c.seen,
			time.Now())
		if got.State != c.state || (got.Reason == "") != (c.state == liveness.Live) ||
			strings.ContainsAny(got.Reason, "\n\x00") {
			t.Errorf("%s: got %+v, want %s", sentence, got, c.state)
		}
	}
}

func TestAServedCertificateHasToBeTheFirstOfTheFile(t *testing.T) {
	c := liveness.Consumer{Kind: liveness.Serving}
	seen := sighting{chain: [][]byte{a.Cert.Raw, b.Cert.Raw}}
	for sentence, w := range map[string]struct {
		want  cas
		state liveness.State
	}{
		"the first":           {cas{a, b}, liveness.Live},
		"the second":          {cas{b, a}, liveness.Waiting},
		"another of its name": {cas{a2}, liveness.Waiting},
		"none":                {nil, liveness.Waiting},
	} {
		if got := judge(c, liveness.ProbeTarget{Certs: bundle(w.want...)}, seen, time.Now()); got.State != w.state {
			t.Errorf("%s: got %+v, want %s", sentence, got, w.state)
		}
	}
}
