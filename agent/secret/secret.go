// SPDX-License-Identifier: Apache-2.0

// Package secret holds values that cannot be printed: tokens, keys, pull secrets, kubeconfigs.
//
// A Bytes has no text form. Every formatting path of fmt, encoding/json and zap yields
// "[redacted]"; only an explicit Reveal gives the content, and Reveal is meant for two places:
// staging a file, and the 0600 store under /var/lib/node-cert-agent.
package secret

import "fmt"

// Redacted is what every textual form of a secret reads.
const Redacted = "[redacted]"

// Bytes is content that must not appear in logs, errors, records or status. The zero value is
// empty and usable.
type Bytes struct{ b []byte }

// New wraps b without copying it.
func New(b []byte) Bytes { return Bytes{b} }

// Reveal returns the content itself. Callers stage or store it and never format it.
func (s Bytes) Reveal() []byte { return s.b }

// Len is the number of bytes.
func (s Bytes) Len() int { return len(s.b) }

// String implements fmt.Stringer.
func (s Bytes) String() string { return Redacted }

// GoString implements fmt.GoStringer, which %#v uses.
func (s Bytes) GoString() string { return Redacted }

// Format implements fmt.Formatter, so that no verb at all reaches the bytes.
func (s Bytes) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(Redacted)) }

// MarshalText implements encoding.TextMarshaler, which encoding/json and zap use.
func (s Bytes) MarshalText() ([]byte, error) { return []byte(Redacted), nil }
