// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// String is the plan as a person reads it, a line for each thing that would be done or not done,
// and a line for each certificate that comes or goes.
func (p Plan) String() string {
	var b strings.Builder
	for _, w := range p.Writes {
		fmt.Fprintf(&b, "write   %s (%s: %s)\n", w.Path, w.Key, w.Cause)
		certLines(&b, "+", w.Added)
		certLines(&b, "-", w.Removed)
	}
	for _, r := range p.Removes {
		if r.Digest == (Digest{}) {
			fmt.Fprintf(&b, "forget  %s (%s: no longer listed, and gone)\n", r.Path, r.Key)
			continue
		}
		fmt.Fprintf(&b, "remove  %s (%s: no longer listed)\n", r.Path, r.Key)
	}
	for _, r := range p.Refused {
		fmt.Fprintf(&b, "refuse  %s: %s\n", printable.Text(r.Key.String()), printable.Text(r.Reason))
	}
	for _, k := range p.Retained {
		fmt.Fprintf(&b, "retain  %s: %s\n", printable.Text(k.Key.String()), k.Reason)
	}
	for _, h := range p.Held {
		fmt.Fprintf(&b, "hold    %s: %s\n", printable.Text(h.Key.String()), h.Reason)
		if h.Cert != nil {
			certLines(&b, "-", []pki.Cert{*h.Cert})
		}
	}
	if b.Len() == 0 {
		return "nothing to do\n"
	}
	return b.String()
}

func certLines(b *strings.Builder, sign string, certs []pki.Cert) {
	for _, c := range certs {
		fmt.Fprintf(b, "  %s %.16s %s, until %s\n", sign, c.Fingerprint, c.Subject,
			c.NotAfter.UTC().Format("2006-01-02"))
	}
}

// Format implements fmt.Formatter: an entry is its key and digest to every verb. Its bytes may be a
// secret, and their only ways out are the request to the writer and the 0600 store.
func (e Entry) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "%s %s", e.Key.String(), e.Digest) }

// Format implements fmt.Formatter, as Entry's does.
func (w CommitWrite) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "%s %s", w.Key.String(), DigestOf(w.Data))
}
