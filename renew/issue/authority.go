// SPDX-License-Identifier: Apache-2.0

package issue

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"time"
)

// authority is a CA that can sign.
type authority struct {
	certificate *x509.Certificate
	signer      crypto.Signer
}

// authority finds the CA that signed the old leaf and whose key is given. A file of trust may hold more: the
// next CA, while trust is being moved, or the same key in two certificates. Of those that fit, the one that
// ends last is used: they have name and key in common, so that the successor chains to each of them.
func (o Order) authority(old *x509.Certificate) (authority, error) {
	all, err := parseChain(o.CA)
	if err != nil {
		return authority{}, refuse(Unreadable, "CA %v", err)
	}
	key, err := parseKey(o.CAKey)
	if err != nil {
		return authority{}, refuse(Unreadable, "CA key %v", err)
	}
	found := authority{signer: key.signer}
	last := refuse(ForeignKey, "%d certificates, none with that key", len(all))
	for _, c := range all {
		if !matches(key.signer.Public(), c) {
			continue
		}
		if why := foreign(old, c); why != nil {
			last = why
		} else if o.fitter(c, found.certificate) {
			found.certificate = c
		}
	}
	if found.certificate == nil {
		return authority{}, last
	}
	return found, nil
}

// fitter tells whether c serves better than the best so far: one that is alive, then the one that ends last.
func (o Order) fitter(c, best *x509.Certificate) bool {
	if best == nil || alive(c, o.Now) != alive(best, o.Now) {
		return best == nil || alive(c, o.Now)
	}
	return c.NotAfter.After(best.NotAfter)
}

func alive(c *x509.Certificate, now time.Time) bool {
	return !now.Before(c.NotBefore) && now.Before(c.NotAfter)
}

// foreign says why a CA is not the one that signed the old leaf.
func foreign(old, ca *x509.Certificate) *Refusal {
	if !bytes.Equal(old.RawIssuer, ca.RawSubject) {
		return refuse(ForeignCA, "its issuer is %q, and the CA is %q", old.Issuer, ca.Subject)
	}
	if err := old.CheckSignatureFrom(ca); err != nil {
		return refuse(ForeignCA, "its signature is not that of %q: %v", ca.Subject, err)
	}
	return nil
}
