// SPDX-License-Identifier: Apache-2.0

package issue

import (
	"fmt"
	"strings"
)

// Reason says why there is no successor.
type Reason string

// The reasons.
const (
	// Unreadable is said of what cannot be parsed, or holds more than it should.
	Unreadable Reason = "cannot be read"
	// IsCA is said of a certificate that may sign others: the end of a CA's life is not ours to move.
	IsCA Reason = "is a CA certificate"
	// NoPair is said of two files of which one was perhaps just written by somebody else.
	NoPair Reason = "certificate and key are no pair"
	// KeyKind is said of a key of a kind or size that we do not make.
	KeyKind Reason = "no such keys are made"
	// ForeignKey means that the CA key belongs to none of the CA certificates.
	ForeignKey Reason = "the CA key is not the CA's"
	// ForeignCA means that none of the CA certificates of that key signed the old leaf.
	ForeignCA Reason = "was not signed by the CA on this host"
	// CAOver means that the CA's life has ended.
	CAOver Reason = "the CA has ended"
	// ClockBehind means that the old leaf or the CA begins later than now.
	ClockBehind Reason = "the clock is behind"
	// NoGain means that the successor would end no later than the old leaf.
	NoGain Reason = "a successor would live no longer"
	// NotProven is said of a request that was not signed with the old key, or not with the new one.
	NotProven Reason = "nobody has proven to have the keys"
	// NotClient is said of a certificate that another host is not asked to follow.
	NotClient Reason = "is not that of a client only"
	// Differs means that what was signed is not a successor, and was thrown away.
	Differs Reason = "the successor is not as it should be"
)

// Refusal is the error that says why there is no successor. It holds no byte of a key.
type Refusal struct {
	Reason Reason
	Fact   string
}

// Error is the reason, and after it the fact.
func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Fact }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Fact: fmt.Sprintf(format, args...)}
}

func joined(words []string) string { return strings.Join(words, ", ") }
