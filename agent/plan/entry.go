// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// Entry turns published bytes into what one file of the field shall have. Of a bundle that is its
// canonical form, so that every program that reads the file finds the same in it. Beside other writers
// it is what was published, which they would write: a final newline is added where it is missing, but for
// registries' files. The result is validated as the field demands. An error is the reason for refusing the
// bytes: one line that does not repeat them. now judges expiry; the zero time judges nothing as expired.
func (r FileSpec) Entry(name string, data []byte, now time.Time) (Entry, error) {
	if len(data) == 0 {
		return Entry{}, errors.New("is empty")
	}
	if data[len(data)-1] != '\n' && !r.verbatim() {
		data = append(slices.Clip(data), '\n')
	}
	e := Entry{Key: Key{Field: r.Field, Name: name}, Data: data}
	if r.Field.Secret() {
		if err := checkPullSecret(data); err != nil {
			return Entry{}, err
		}
	} else {
		b, err := pki.Parse(data, pki.Options{AllowLeaf: r.Field.List(), Strict: r.Strict,
			AsPublished: r.AsPublished(), Now: now})
		if err != nil {
			return Entry{}, err
		}
		e.Certs, e.Warnings = b.Certs, b.Warnings
		if !r.AsPublished() {
			e.Data = b.Canonical
		}
	}
	e.Digest = DigestOf(e.Data)
	return e, nil
}

// OnDisk is the digest that the file shall have.
func (e Entry) OnDisk() Digest { return cmp.Or(e.AsIs, e.Digest) }

// Check is what the writer asks of bytes that the agent wants written: that they are what
// Entry makes of them. It gives the certificates in them. An error is the reason for refusing them and
// does not repeat them.
func (r FileSpec) Check(data []byte) ([]pki.Cert, error) {
	e, err := r.Entry("", data, time.Time{})
	if err == nil && !bytes.Equal(e.Data, data) {
		err = errors.New("is not in the form in which the files are written")
	}
	return e.Certs, err
}

// with is e with more certificates at its end, as many as a bundle may hold. What does not fit is
// left out from the end, which is what has been missing from the ControllerConfig for longest.
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
