// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"encoding/hex"
	"encoding/pem"
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
	// Subject is the distinguished name in RFC 2253 form, made printable: it comes from the cluster.
	Subject             string
	NotBefore, NotAfter time.Time
	// CA tells whether basicConstraints says so.
	CA bool
	// block is the PEM block in the text that it was read from. The text is kept by others anyway, and
	// a decoded copy of each bundle would weigh as much again.
	block []byte
}

// DER decodes the certificate, anew at each call. It is nil for a Cert that was not read from text.
func (c Cert) DER() []byte {
	if b, _ := pem.Decode(c.block); b != nil {
		return b.Bytes
	}
	return nil
}
