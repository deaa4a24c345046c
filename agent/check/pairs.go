// SPDX-License-Identifier: Apache-2.0

package check

import (
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Pair is a certificate with its key of this host's control plane, as node-cert-agent-renew.service saw it.
type Pair struct {
	Name     string
	NotAfter time.Time
	// RenewedBy is who renews it unattended; empty for nobody.
	RenewedBy string
	// Expiring is set if nobody renews it and it ends soon, Expired if it has ended.
	Expiring, Expired bool
	// Problem is why it cannot be used, Stale why those who use it use another one; empty if not.
	Problem, Stale string
}

// Pairs are those of the host, and when they were seen.
type Pairs struct {
	All      []Pair
	Observed time.Time
}

// silentPairs is after how long without a look the service is taken for dead: its longest interval is a day.
const silentPairs = 25 * time.Hour

func pairs(f Facts, r *report) {
	const what = "control plane"
	if f.Pairs == nil {
		return
	}
	if age := f.Now.Sub(f.Pairs.Observed); age > silentPairs {
		r.add(Warn, what, "systemctl status node-cert-agent-renew.service", "nobody has looked at its certificates since %s",
			stamp(f.Pairs.Observed))
	}
	good, first := true, Pair{}
	for _, p := range f.Pairs.All {
		name := printable.Text(p.Name)
		const renew = "renew it with the tool that made it; node-cert-agent renew says where it is, and who uses it"
		switch {
		case p.Expired:
			r.add(Fail, what, renew, "%s ended at %s", name, stamp(p.NotAfter))
		case p.Problem != "":
			r.add(Fail, what, "see node-cert-agent renew", "%s: %s", name, printable.Text(p.Problem))
		case p.Expiring:
			r.add(Warn, what, renew, "%s ends at %s, and nobody renews it", name, stamp(p.NotAfter))
		case p.Stale != "":
			r.add(Warn, what, "start it again; a static pod by ending its process, which the kubelet replaces",
				"%s: %s", name, printable.Text(p.Stale))
		default:
			if p.RenewedBy == "" && (first.NotAfter.IsZero() || p.NotAfter.Before(first.NotAfter)) {
				first = p
			}
			continue
		}
		good = false
	}
	switch {
	case !good || len(f.Pairs.All) == 0:
	case first.NotAfter.IsZero():
		r.ok(what, "%d pairs of certificate and key, all of which somebody renews", len(f.Pairs.All))
	default:
		r.ok(what, "%d pairs of certificate and key; the first that nobody renews is %s, which ends at %s", len(f.Pairs.All),
			printable.Text(first.Name), stamp(first.NotAfter))
	}
}
