// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// verdict says what one server made of a pair.
type verdict int

const (
	accepted verdict = iota
	refused
	silent // nothing can be said: it did not answer
)

// answer is that of one server; fact is one line.
type answer struct {
	verdict verdict
	fact    string
}

// proof is what all that were asked say together.
type proof struct {
	state proofState
	fact  string
}

type proofState int

const (
	// proven means that at least one server of each kind accepted the pair, and none refused it.
	proven proofState = iota
	// unknown means that there is nobody who could say so.
	unknown
	// unproven means that a server refused it, or that none of a kind answered.
	unproven
)

// conclude makes a proof of what those say who serve the pair, and of what those say who are shown it. That a server
// does not answer says nothing about the pair, as long as another one of its kind does: etcd closes the connection of
// a peer that it refuses for its names, and says nothing.
func conclude(shown, taken []answer) proof {
	var facts, quiet []string
	good := true
	for _, kind := range [][]answer{shown, taken} {
		one := len(kind) == 0
		for _, a := range kind {
			switch a.verdict {
			case accepted:
				one = true
			case refused:
				facts = append(facts, a.fact)
			case silent:
				quiet = append(quiet, a.fact)
			}
		}
		good = good && one
	}
	switch {
	case len(shown)+len(taken) == 0:
		return proof{unknown, "no server of this host can say whether it is accepted"}
	case len(facts) > 0 || !good:
		return proof{unproven, strings.Join(append(facts, quiet...), "; ")}
	}
	return proof{proven, strings.Join(quiet, "; ")}
}

// prove asks again and again, until a pair is proven or the time is over.
func (o OnDemand) prove(ctx context.Context, f pair.Facts, timeout time.Duration) (proof, error) {
	deadline := o.Clock.Now().Add(timeout)
	for {
		p := conclude(o.ask(ctx, f))
		if p.state != unproven || !o.Clock.Now().Before(deadline) {
			return p, ctx.Err()
		}
		select {
		case <-ctx.Done():
			return p, ctx.Err()
		case <-o.Clock.After(o.Pause):
		}
		if err := o.stillThere(ctx, f); err != nil {
			return p, err
		}
	}
}

// stillThere says whether what waits for proof is what was replaced. A signer that is asked does not end, and goes on
// knowing who asks.
func (o OnDemand) stillThere(ctx context.Context, f pair.Facts) error {
	seen, err := o.Signer.Inspect(ctx)
	if err != nil {
		return err
	}
	if now, ok := named(seen.Pairs, f.Name); !ok || now.Leaf.SHA256 != f.Leaf.SHA256 {
		return errors.New("somebody else changed it meanwhile")
	}
	return nil
}

// ask asks everybody once: those who serve the pair, and those who are shown it by clients.
func (o OnDemand) ask(ctx context.Context, f pair.Facts) (shown, taken []answer) {
	for _, address := range f.Addresses {
		shown = append(shown, o.shown(ctx, f, address))
	}
	for _, t := range f.Targets {
		taken = append(taken, o.taken(ctx, f, t))
	}
	return shown, taken
}

func (o OnDemand) shown(ctx context.Context, f pair.Facts, address string) answer {
	switch s := look(ctx, o.Leaf, address); {
	case s.Problem != "":
		return answer{silent, address + ": " + s.Problem}
	case s.Leaf.SHA256 != f.Leaf.SHA256:
		return answer{refused, fmt.Sprintf("%s serves another certificate, which ends at %s", address,
			s.Leaf.NotAfter.Format(time.RFC3339))}
	}
	return answer{verdict: accepted}
}

func (o OnDemand) taken(ctx context.Context, f pair.Facts, t pair.Target) answer {
	if len(f.Chain) == 0 {
		return answer{silent, t.Address + ": the signer gave no certificate to show"}
	}
	leaf, err := x509.ParseCertificate(f.Chain[0])
	if err != nil {
		return answer{silent, t.Address + ": the signer's certificate cannot be read"}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	status, err := o.Get(ctx, t, tls.Certificate{Certificate: f.Chain, Leaf: leaf,
		PrivateKey: o.Signer.Key(ctx, f.Name, leaf.PublicKey)})
	remote, isRemote := errors.AsType[*net.OpError](err)
	switch {
	case isRemote && remote.Op == "remote error":
		return answer{refused, fmt.Sprintf("%s refuses it: %v", t.Address, remote.Err)}
	case err != nil:
		return answer{silent, fmt.Sprintf("%s: %v", t.Address, err)}
	case status == http.StatusUnauthorized:
		return answer{refused, t.Address + " refuses it: 401 Unauthorized"}
	}
	return answer{verdict: accepted}
}

// Get is a request to a server as a client with a certificate, over TLS 1.3 and HTTP/1.1: etcd's peer port speaks
// nothing else. It returns the status. Whom it speaks to is not verified: it sends nothing that is worth anything,
// what a client signs in TLS 1.3 is good for this one connection, and who can answer in a server's place on a
// control-plane host needs no false proof.
func Get(ctx context.Context, t pair.Target, certificate tls.Certificate) (int, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSNextProto:      map[string]func(string, *tls.Conn) http.RoundTripper{},
		TLSClientConfig: &tls.Config{
			InsecureSkipVerify:   true, //nolint:gosec // see above
			MinVersion:           tls.VersionTLS13,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil },
		},
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+t.Address+t.Path, nil)
	if err != nil {
		return 0, err
	}
	if t.Proxied {
		request.Header.Set("X-Remote-User", "system:node-cert-agent:proof")
	}
	reply, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	return reply.StatusCode, reply.Body.Close()
}

// named is the pair of that name.
func named(all []pair.Facts, name string) (pair.Facts, bool) {
	i := slices.IndexFunc(all, func(f pair.Facts) bool { return f.Name == name })
	if i < 0 {
		return pair.Facts{}, false
	}
	return all[i], true
}
