// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"net/http"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
)

// verdict is what an answer means for what was asked and for who asked.
type verdict int

const (
	noAnswer  verdict = iota // no answer came
	accepted                 // 2xx
	exists                   // 409: somebody, most likely we, made it before
	gone                     // 404
	unknown                  // 401: the server does not know these credentials
	forbidden                // 403: RBAC, a server that has just started, or a request without identity
	busy                     // 429 and 5xx: later
	invalid                  // any other answer: asking again in the same words will not help
)

func (a answer) verdict() verdict {
	switch {
	case a.status == 0:
		return noAnswer
	case a.status < 300:
		return accepted
	case a.status == http.StatusConflict:
		return exists
	case a.status == http.StatusNotFound:
		return gone
	case a.status == http.StatusUnauthorized:
		return unknown
	case a.status == http.StatusForbidden:
		return forbidden
	case a.status == http.StatusTooManyRequests || a.status >= 500:
		return busy
	}
	return invalid
}

// stage is how far a request has come.
type stage int

const (
	waiting stage = iota
	issued
	denied
)

// stage reads the conditions of the request. A denial counts more than a certificate: both together
// do not happen, and a person who denied something meant it.
func (r request) stage() (s stage, why string) {
	for _, c := range r.conditions {
		if c.Status == "False" {
			continue
		}
		switch c.Type {
		case "Denied", "Failed":
			why = c.Type
			for _, part := range []string{c.Reason, c.Message} {
				if part != "" {
					why += ": " + part[:min(len(part), maxMessage)]
				}
			}
			return denied, why
		case "Approved":
			why = "approved, and not yet signed"
		}
	}
	if len(r.certificate) > 0 {
		return issued, ""
	}
	return waiting, cmp.Or(why, "waiting for approval")
}

// backdate is how long before its issue a certificate of the kube-controller-manager begins.
const backdate = 5 * time.Minute

// shortest is the least time between two renewals, however short-lived the certificates are.
const shortest = 10 * time.Second

// renewal is when a certificate is to be renewed: at 70 to 90 % of its life, counted from its receipt,
// because it is backdated and the issuer may have shortened it. Where between is a property of the
// certificate, so that a fleet does not move at once and a restart changes nothing.
//
// The life that is left when it is received is never longer than what was issued: a clock that is
// hours slow would else renew after the end.
func renewal(c *x509.Certificate, received time.Time) time.Time {
	whole := c.NotAfter.Sub(c.NotBefore)
	if whole > 2*backdate {
		whole -= backdate
	}
	life := min(c.NotAfter.Sub(received), whole)
	if life <= 0 { // our clock is fast
		life = whole
	}
	h := sha256.Sum256(c.SerialNumber.Bytes())
	place := float64(binary.BigEndian.Uint32(h[:])) / (1 << 32)
	after := time.Duration(float64(life) * (0.7 + 0.2*place))
	return received.Add(max(after, shortest, life/10))
}

// backoff is the pause after the n-th failure in a row, from 0: it doubles from least to most, less a
// random share of up to a quarter.
func backoff(least, most time.Duration, n int, random float64) time.Duration {
	d := clock.Backoff{Min: least, Max: most}.Pause(n)
	return d - time.Duration(random*float64(d)/4)
}

// The first soonPolls polls of a request, some two minutes, are at most soon apart: a node that was just started is
// approved about then, and must not lag behind.
const (
	soon      = 4 * time.Second
	soonPolls = 40
)

// pollDelay is the pause after the n-th poll of an undecided request, less a random share of up to a quarter. It
// doubles up to soon, stays there for a while, and doubles again up to most.
func pollDelay(least, most time.Duration, n int, random float64) time.Duration {
	if n <= soonPolls {
		return backoff(least, min(soon, most), n, random)
	}
	return backoff(min(soon, most), most, n-soonPolls, random)
}

// doubted reports whether refusals since then, the last one now, are enough to give an identity up
// for lost. While an API server of several is behind, answers differ; a certificate that is also past
// its end by our own clock needs no second opinion.
func doubted(since, now, notAfter time.Time, after time.Duration) bool {
	return now.After(notAfter) || now.Sub(since) >= after
}
