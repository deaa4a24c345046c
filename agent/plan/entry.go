// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// Entry turns published bytes into what one file of the row shall have: a final newline is added
// where it is missing, except in registries' files beside other writers, which leave it out; and the
// result is validated as the row demands. An error is the reason for refusing the bytes: one line that
// does not repeat them. now judges expiry; the zero time judges nothing as expired.
func (r Row) Entry(name string, data []byte, now time.Time) (Entry, error) {
	if len(data) == 0 {
		return Entry{}, errors.New("is empty")
	}
	if data[len(data)-1] != '\n' && !r.verbatim() {
		data = append(slices.Clip(data), '\n')
	}
	e := Entry{Key: Key{Row: r.ID, Name: name}, Data: data, Digest: DigestOf(data)}
	if r.ID.Content() == PullSecret {
		if err := checkPullSecret(data); err != nil {
			return Entry{}, err
		}
		return e, nil
	}
	b, err := pki.Parse(data, pki.Options{AllowLeaf: r.ID.List(), Strict: r.Validate == Strict, Now: now})
	if err != nil {
		return Entry{}, err
	}
	e.Certs, e.Warnings = b.Certs, b.Warnings
	return e, nil
}

// OnDisk is the digest that the file shall have.
func (e Entry) OnDisk() Digest {
	if e.AsIs != (Digest{}) {
		return e.AsIs
	}
	return e.Digest
}

// with is e with more certificates at its end, as many as a bundle may hold. What does not fit is
// left out from the end, which is what has been missing from the object for longest.
func (e Entry) with(certs []pki.Cert) Entry {
	if len(certs) == 0 {
		return e
	}
	e.Data, e.Certs = slices.Clone(e.Data), slices.Clone(e.Certs)
	if n := len(e.Data); n > 0 && e.Data[n-1] != '\n' {
		e.Data = append(e.Data, '\n')
	}
	for _, x := range certs {
		p := x.PEM()
		if len(e.Certs) == pki.MaxCerts || len(e.Data)+len(p) > pki.MaxBytes {
			break
		}
		e.Data, e.Certs = append(e.Data, p...), append(e.Certs, x)
	}
	e.Digest = DigestOf(e.Data)
	return e
}
