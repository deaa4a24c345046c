// SPDX-License-Identifier: Apache-2.0

// Package pki decides what counts as certificate data fit for a host's disk: it parses and
// validates PEM bundles and compares them as sets of certificates. It is pure: the caller brings
// the bytes and the clock.
//
// It rejects and never repairs. A candidate that holds a private key, an undecodable or truncated
// block or no usable certificate, or that is larger than the limits, is refused whole, because
// encoding/pem skips what it cannot decode and so turns a typing error into silently lost trust.
//
// There is one reading of a bundle, the strictest consumer's: what is accepted, client-go's
// ParseCertsPEM, crypto/x509, OpenSSL and p11-kit load with exactly our fingerprints, and what any of
// them would skip, join or read as something else is refused: headers, other labels, blank lines in
// blocks, control characters, p11-kit's own format, certificates that are not plain DER. tests/readers
// holds the package to it. Where the bytes need not be somebody else's, Bundle.Canonical is written.
//
// What all of them load alike and is questionable all the same (text outside blocks, CRLF, duplicates,
// expired certificates) is accepted with a warning. NotBefore never refuses: clocks of booting hosts
// are slow.
//
// It does not verify chains, signatures or names; consumers do that with the bytes it lets pass.
//
// Sources: RFC 7468 (textual encodings), RFC 5280 (profile), X.690 (DER), the parsing rules of
// cert-manager/trust-manager pkg/util/cert_pool.go, and the readers themselves: client-go
// util/cert/pem.go, crypto/pem/pem_lib.c of OpenSSL, common/pem.c and trust/parser.c of p11-kit.
package pki
