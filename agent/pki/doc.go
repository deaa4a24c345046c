// SPDX-License-Identifier: Apache-2.0

// Package pki decides what counts as certificate data fit for a host's disk: it parses and
// validates PEM bundles and compares them as sets of certificates. It is pure: the caller brings
// the bytes and the clock.
//
// It rejects and never repairs. A candidate that holds a private key, an undecodable or truncated
// block or no usable certificate, or that is larger than the limits, is refused whole, because
// encoding/pem skips what it cannot decode and so turns a typing error into silently lost trust.
// Questionable but loadable content (text outside blocks, headers, duplicates, expired
// certificates) is accepted with a warning. NotBefore never refuses: clocks of booting hosts are
// slow.
//
// It does not verify chains, signatures or names; consumers do that with the bytes it lets pass.
//
// Sources: RFC 7468 (textual encodings), RFC 5280 (profile), and the parsing rules of
// cert-manager/trust-manager pkg/util/cert_pool.go.
package pki
