// SPDX-License-Identifier: Apache-2.0

package files

import (
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// cache remembers which bytes were last seen where, and which certificates they hold, so that
// looking at an unchanged host moves no content and parses nothing. It is a cache: what it knows of
// a file never replaces looking at it.
type cache struct {
	at       map[plan.Key]plan.Digest
	contents map[plan.Digest]pki.Content
}

func newCache() cache {
	return cache{at: make(map[plan.Key]plan.Digest), contents: make(map[plan.Digest]pki.Content)}
}

// learn takes in what was observed and forgets every content that is neither on disk nor desired.
func (c *cache) learn(o plan.Observed, d plan.Desired) {
	fresh := newCache()
	for _, e := range d.Entries {
		fresh.wrote(e)
	}
	c.see(o)
	for key, f := range o {
		// A file whose bytes were not sent is not in at: it is asked for with them the next time.
		if content, ok := c.contents[f.Digest]; ok && f.Kind == plan.Regular {
			fresh.contents[f.Digest], fresh.at[key] = content, f.Digest
		}
	}
	*c = fresh
}

// see takes in what was observed of some files.
func (c *cache) see(o plan.Observed) {
	for key, f := range o {
		if _, ok := c.contents[f.Digest]; !ok && f.Kind == plan.Regular && plan.DigestOf(f.Data) == f.Digest {
			c.contents[f.Digest] = pki.Read(f.Data)
		}
		if _, ok := c.contents[f.Digest]; ok {
			c.at[key] = f.Digest
		}
	}
}

// wrote takes in what is on disk because we put it there.
func (c *cache) wrote(e plan.Entry) {
	c.contents[e.Digest] = pki.Content{Certs: e.Certs, Whole: len(e.Certs) > 0}
}
