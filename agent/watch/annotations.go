// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// The ControllerConfig's annotations that mean something.
const (
	// RevokeAnnotation names certificates that go at once where the ControllerConfig does not publish them any
	// more: "sha256:" and 64 hexadecimal digits over the DER encoding, separated by commas.
	RevokeAnnotation = annotationPrefix + "revoke"
	// PausedAnnotation stops removals and unit actions for as long as it is there; its value is the
	// reason that is shown.
	PausedAnnotation = annotationPrefix + "paused"
)

// annotated reads the annotations. What cannot be read is refused, and the rest counts.
func (q *projection) annotated(all map[string]string) {
	if reason, ok := all[PausedAnnotation]; ok {
		if q.desired.Paused = printable.Text(strings.TrimSpace(reason)); q.desired.Paused == "" {
			q.desired.Paused = "no reason given"
		}
	}
	for item := range strings.SplitSeq(all[RevokeAnnotation], ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		digits, ok := strings.CutPrefix(item, "sha256:")
		raw, err := hex.DecodeString(digits)
		if !ok || err != nil || len(raw) != len(pki.Fingerprint{}) {
			q.refuse(plan.Key{Field: RevokeAnnotation}, "an item is not sha256: and 64 hexadecimal digits")
			continue
		}
		if fp := pki.Fingerprint(raw); !slices.Contains(q.desired.Revoked, fp) {
			q.desired.Revoked = append(q.desired.Revoked, fp)
		}
	}
}
