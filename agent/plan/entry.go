// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// List tells the fields that are lists of {file, data} from those that are one bundle.
func (id RowID) List() bool {
	return id == ImageRegistryBundleData || id == ImageRegistryBundleUserData
}

// Entry turns published bytes into what one file of the row shall have: a final newline is added
// where it is missing, and the result is validated as the row demands. An error is the reason for
// refusing the bytes: one line that does not repeat them. now judges expiry; the zero time judges
// nothing as expired.
func (r Row) Entry(name string, data []byte, now time.Time) (Entry, error) {
	if len(data) == 0 {
		return Entry{}, errors.New("is empty")
	}
	if data[len(data)-1] != '\n' {
		data = append(slices.Clip(data), '\n')
	}
	b, err := pki.Parse(data, pki.Options{AllowLeaf: r.ID.List(), Strict: r.Validate == Strict, Now: now})
	if err != nil {
		return Entry{}, err
	}
	return Entry{Key: Key{Row: r.ID, Name: name}, Data: data, Digest: DigestOf(data), Certs: b.Certs, Warnings: b.Warnings}, nil
}
