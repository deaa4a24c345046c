// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// Trust says how removals of trust are treated; additions are never delayed.
type Trust struct {
	// Hold is how long a certificate or a file that the ControllerConfig dropped stays, in boot time. Zero
	// mirrors the ControllerConfig at once.
	Hold time.Duration
	// Source is the field with the CAs by which the agent itself verifies the API server, or empty. It
	// shrinks only after a connection was verified with what would be left.
	Source Field
	// Mirror writes exactly what is published and holds nothing, because another program that writes
	// the same files does so too.
	Mirror bool
}

// Slow reports whether trust that the ControllerConfig drops is taken away later than the ControllerConfig is followed.
func (t Trust) Slow() bool { return t.Hold > 0 && !t.Mirror }

// HoldKey names what is held: one certificate of a file, or with a zero fingerprint the whole file.
type HoldKey struct {
	Path string
	Cert pki.Fingerprint
}

// Hold counts for how long something has been missing from the ControllerConfig. Time counts while the host is
// up; what passed between the last look and the end of a boot does not.
type Hold struct {
	Boot string `json:"boot"`
	// Since and Seen are when it was first and last seen missing, in the uptime of Boot. Since is
	// negative if it was missing in an earlier boot.
	Since time.Duration `json:"since"`
	Seen  time.Duration `json:"seen"`
	// Confirmed is set once an operator said that this shall not wait.
	Confirmed bool `json:"confirmed,omitempty"`
}

// now is h at a later moment.
func (h Hold) now(m Moment) Hold {
	if h.Boot != m.Boot || m.Uptime < h.Seen {
		return Hold{Boot: m.Boot, Since: m.Uptime - (h.Seen - h.Since), Seen: m.Uptime, Confirmed: h.Confirmed}
	}
	h.Seen = m.Uptime
	return h
}

// age is for how long it had been missing when it was last seen so.
func (h Hold) age() time.Duration { return h.Seen - h.Since }

// Missing are the holds of m without those that d puts an end to: of certificates that it publishes, and of
// files that it names, be it with content that is not fit. That does not depend on whether the file can be
// read or written now.
func (m Memory) Missing(d Desired, p Policy) map[HoldKey]Hold {
	if !d.Verified || len(m.Holds) == 0 {
		return m.Holds
	}
	named := make(map[HoldKey]bool)
	for _, e := range d.Entries {
		path, _ := p.Path(e.Key)
		named[HoldKey{Path: path}] = true
		for _, x := range e.Certs {
			named[HoldKey{path, x.Fingerprint}] = true
		}
	}
	for _, r := range d.Refused {
		path, _ := p.Path(r.Key)
		named[HoldKey{Path: path}] = true
	}
	left := maps.Clone(m.Holds)
	maps.DeleteFunc(left, func(k HoldKey, _ Hold) bool { return named[k] })
	return left
}

// behind tells whether the source of the field is not followed now. It may have asked again for what it dropped.
func (d Desired) behind(id Field) bool {
	if id.FromConfigMap() {
		return d.ConfigMapBehind
	}
	return d.Behind
}

// Held is one removal of trust that waits.
type Held struct {
	Key
	// Cert is what would go, or nil if it is the whole file.
	Cert *pki.Cert
	// Left is how long it still waits if nothing else is in the way.
	Left time.Duration
	// Reason says why; it is stable while the hold lasts.
	Reason string
}

// Question asks whether the API server can be verified with the certificates that would be left in the
// trust source. Those that are there Now may not verify it either, and then nothing is lost.
type Question struct {
	Key
	Left, Now []pki.Cert
}

// Why something is held. An answer to a Question is appended to notVerified.
const (
	waits       = "the ControllerConfig dropped it; it waits in case that was a mistake"
	unread      = "it has waited for long enough; it goes when the ControllerConfig is read again and still drops it"
	massRemoval = "more than half of what we own would go at once; 'node-cert-agent apply --now' confirms it"
	asking      = "the API server has not been verified with what would be left yet"
	notVerified = "the API server cannot be verified with what would be left: "
)
