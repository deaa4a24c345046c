// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

// Annotations of a NodeBundle that let certificates go which its policy keeps. The admission policy
// node-cert-publisher-force holds that ForcedBy is whoever wrote them, and that there is a reason.
const (
	// ForceRemoval lists certificates and since when each is kept, as sha256:FINGERPRINT@TIME (RFC 3339), with commas
	// between. One that is back in a source meanwhile is kept since another time when it goes again.
	ForceRemoval = "node-cert-agent.io/force-removal"
	ForceReason  = "node-cert-agent.io/force-reason"
	ForcedBy     = "node-cert-agent.io/forced-by"
)

// Force is what the annotations say. The zero value forces nothing.
type Force struct {
	By, Why string
	since   map[pki.Fingerprint]time.Time
}

// ReadForce reads the annotations of a NodeBundle. Without a name and a reason they force nothing, and neither does
// what cannot be read.
func ReadForce(annotations map[string]string) Force {
	f := Force{By: annotations[ForcedBy], Why: annotations[ForceReason], since: make(map[pki.Fingerprint]time.Time)}
	if f.By == "" || f.Why == "" {
		return Force{}
	}
	for item := range strings.SplitSeq(annotations[ForceRemoval], ",") {
		name, at, _ := strings.Cut(strings.TrimSpace(item), "@")
		since, err := time.Parse(time.RFC3339, at)
		for _, fp := range Named(name) {
			if err == nil {
				f.since[fp] = since
			}
		}
	}
	return f
}

func (f Force) allows(k kept) bool {
	since, ok := f.since[k.fingerprint]
	return ok && since.Equal(k.since)
}

// ForceOf is the value of ForceRemoval for those of the certificates that no source has. It is empty if there is none.
func ForceOf(certificates []v1alpha1.Certificate) string {
	var all []string
	for _, c := range certificates {
		if c.KeptSince != nil {
			all = append(all, "sha256:"+c.SHA256+"@"+c.KeptSince.UTC().Format(time.RFC3339))
		}
	}
	return strings.Join(all, ",")
}
