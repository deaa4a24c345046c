// SPDX-License-Identifier: Apache-2.0

package csr

import "fmt"

// rule names what a request has to obey, in one or two words for events and conditions.
type rule string

// The rules, in the order in which Check looks.
const (
	// ruleEncoding: one PEM block CERTIFICATE REQUEST with a PKCS#10 in it, and nothing else.
	ruleEncoding rule = "encoding"
	// ruleSubject: a common name of ours and our one organization, and nothing else.
	ruleSubject rule = "subject"
	// ruleNodeName: the common name ends in a lower-case DNS name of at most 253 bytes.
	ruleNodeName rule = "node name"
	// ruleKey: ECDSA on the curve P-256.
	ruleKey rule = "key"
	// ruleExtensions: none are asked for, and so no alternative names.
	ruleExtensions rule = "extensions"
	// ruleSignature: made with the key in the request.
	ruleSignature rule = "signature"
)

// Violation is a rule that a request breaks. Whoever made the request has to change it; asking again
// does not help.
type Violation struct {
	Rule rule
	// Fact is what is wrong, on one line and without control characters; parts of the request are
	// quoted and cut.
	Fact string
}

// Error implements error.
func (v *Violation) Error() string { return "certificate request: " + string(v.Rule) + ": " + v.Fact }

func violation(r rule, format string, args ...any) error {
	return &Violation{r, fmt.Sprintf(format, args...)}
}
