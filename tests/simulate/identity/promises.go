// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// mostAtOnce is how many contacts with the outside there may be while no time passes.
	mostAtOnce = 1000
	// doubted is how long an identity has to be refused before another is asked for.
	doubted = 2 * time.Minute
)

// busy counts a contact, and tells whether there were too many without any pause. The lock is held.
func (w *env) busy() bool {
	if now := time.Now(); !now.Equal(w.instant) {
		w.instant, w.at = now, 0
	}
	if w.at++; w.at == mostAtOnce {
		w.violate("busy", "%d contacts with the outside at one instant; %s: %s", w.at, w.process.status.State,
			w.process.status.Reason)
	}
	return w.at >= mostAtOnce
}

// answered notes how a server stands to the identity on disk. The lock is held.
func (w *env) answered(what string, r *http.Request, status int) {
	g, certs := generationIn(w.dir[currentFile]), r.TLS.PeerCertificates
	switch {
	case g == nil || len(certs) == 0 || !certs[0].Equal(g.cert):
	case status == http.StatusUnauthorized || status == http.StatusForbidden && what == "whoami":
		if w.refused.IsZero() {
			w.refused = time.Now()
		}
	case what == "whoami" && status < 300:
		w.refused = time.Time{}
	}
}

// checkTokenUse judges that another identity is not asked for with a token where the one that there is was not refused
// for a while. A file that states other CAs is one that leads elsewhere, and a certificate that is past its end by
// the host's clock needs no second opinion. The lock is held.
func (w *env) checkTokenUse(c *cluster, r *http.Request) {
	g := generationIn(w.dir[currentFile])
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if len(r.TLS.PeerCertificates) > 0 || !w.works(g) || c != w.of(g) || string(w.cas[token]) != g.stated ||
		time.Now().Add(w.offset).After(g.cert.NotAfter) {
		return
	}
	if w.refused.IsZero() || time.Since(w.refused) < doubted {
		w.violate("hasty", "%s is asked with %s, and the identity there was not refused for long", c.name, token)
	}
}

// succeeds judges that an identity stays on disk beside the next one. The lock is held.
func (w *env) succeeds(before *generation) {
	w.refused = time.Time{}
	if !w.works(before) {
		return
	}
	if kept := generationIn(w.dir[previousFile]); kept == nil || !kept.cert.Equal(before.cert) {
		w.violate("alone", "an identity that works is replaced and not kept")
	}
}

func (w *env) other(c *cluster) *cluster {
	if c.name == "a" {
		return w.clusters["b"]
	}
	return w.clusters["a"]
}

// impersonate puts somebody at c to whom the other cluster issued a server certificate for that name.
func (c *cluster) impersonate(other *cluster) {
	by := other.serving
	has := by.Issue(x509.Certificate{NotBefore: by.Cert.NotBefore, NotAfter: by.Cert.NotAfter,
		DNSNames: []string{c.name + ".test"}}).TLS()
	has.Certificate = append(has.Certificate, by.Cert.Raw)
	c.impostor = &has
}

// watch uses the identity, as the watch does, and judges that a server is believed that was believed in this life,
// or that the identity on disk says how to verify. The lock is not held.
func (w *env) watch() (why string) {
	w.mu.Lock()
	p := w.process
	g := generationIn(w.dir[currentFile])
	c := w.of(g)
	w.mu.Unlock()
	if c == nil {
		return "there is no identity"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.keeper.Server().JoinPath("version").String(), nil)
	if err != nil {
		panic(err)
	}
	res, err := p.keeper.HTTPClient().Do(req)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if w.logf("watch %s: %d", c.name, res.StatusCode); res.StatusCode != http.StatusOK {
			return res.Status
		}
		if c.impostor == nil {
			p.verified = c.serving
		}
		return ""
	}
	w.logf("watch %s: %v", c.name, err)
	var unverified *tls.CertificateVerificationError
	if errors.As(err, &unverified) && p.alive && c.impostor == nil && p.status.Serial == g.cert.SerialNumber.Text(16) &&
		(c.serving == p.verified || strings.Contains(g.known, string(c.serving.PEM()))) {
		w.violate("unverified", "the server at %s is not believed any more: %v", c.name, err)
	}
	return err.Error()
}
