// SPDX-License-Identifier: Apache-2.0

package csr

import "fmt"

// Rule names what a request has to obey, in one or two words for events and conditions.
type Rule string

// The rules, in the order in which Check looks.
const (
	// Encoding: one PEM block CERTIFICATE REQUEST with a PKCS#10 in it, and nothing else.
	Encoding Rule = "encoding"
	// Subject: a common name of ours and our one organization, and nothing else.
	Subject Rule = "subject"
	// NodeName: the common name ends in a lower-case DNS name of at most 253 bytes.
	NodeName Rule = "node name"
	// Key: ECDSA on the curve P-256.
	Key Rule = "key"
	// Extensions: none are asked for, and so no alternative names.
	Extensions Rule = "extensions"
	// Signature: made with the key in the request.
	Signature Rule = "signature"
)

// Violation is a rule that a request breaks. Whoever made the request has to change it; asking again
// does not help.
type Violation struct {
	Rule Rule
	// Fact is what is wrong, on one line and without control characters; parts of the request are
	// quoted and cut.
	Fact string
}

// Error implements error.
func (v *Violation) Error() string { return "certificate request: " + string(v.Rule) + ": " + v.Fact }

func violation(r Rule, format string, args ...any) error {
	return &Violation{r, fmt.Sprintf(format, args...)}
}
