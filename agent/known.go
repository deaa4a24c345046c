// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// known remembers which bytes were last seen where, and which certificates they hold, so that
// looking at an unchanged host moves no content and parses nothing. It is a cache: what it knows of
// a file never replaces looking at it.
type known struct {
	at    map[plan.Key]plan.Digest
	certs map[plan.Digest][]pki.Cert
}

func newKnown() *known {
	return &known{at: make(map[plan.Key]plan.Digest), certs: make(map[plan.Digest][]pki.Cert)}
}

// learn takes in what was observed and forgets every content that is neither on disk nor desired.
func (k *known) learn(o plan.Observed, d plan.Desired) {
	fresh := newKnown()
	for _, e := range d.Entries {
		fresh.certs[e.Digest] = e.Certs
	}
	for key, f := range o {
		if f.Kind != plan.Regular {
			continue
		}
		fresh.at[key] = f.Digest
		if _, ok := fresh.certs[f.Digest]; ok {
			continue
		}
		if c, ok := k.certs[f.Digest]; ok {
			fresh.certs[f.Digest] = c
		} else if b, err := pki.Parse(f.Data, pki.Options{AllowLeaf: true}); err == nil {
			fresh.certs[f.Digest] = b.Certs
		} else {
			delete(fresh.at, key) // unusable content: ask for it again, it may have been cut short
		}
	}
	*k = *fresh
}
