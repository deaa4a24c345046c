// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"encoding/hex"
	"time"
)

// Fingerprint is the SHA-256 over a certificate's DER encoding; certificates are compared by it and
// by nothing else.
type Fingerprint [32]byte

// String is the lower-case hexadecimal form.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Cert holds the facts of one certificate that plans, records and status need.
type Cert struct {
	Fingerprint Fingerprint
	// Subject is the distinguished name in RFC 2253 form. It comes from the cluster: escape it
	// before showing it.
	Subject             string
	NotBefore, NotAfter time.Time
	// CA tells whether basicConstraints says so.
	CA bool
	// DER is the certificate itself.
	DER []byte
}
