// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
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

// retain gives what the file shall have now: what the ControllerConfig asks for, and after it the certificates
// on disk that the ControllerConfig does not publish and that may not go yet. Bundles grow at once and shrink
// slowly: whoever is at the other end of a connection may be slower than we.
func (c *computation) retain(spec FileSpec, path string, e Entry, disk pki.Content) Entry {
	if spec.ByFingerprint() || len(e.Certs) == 0 {
		return e // the file goes or stays as a whole; or it is no bundle
	}
	t := c.in.Policy.Trust
	switch {
	case !c.in.Desired.Verified || e.Carried:
		_, extra := pki.Diff(disk.Certs, e.Certs)
		return c.withoutRevoked(spec, e.with(extra))
	case t.Mirror && !spec.Field.Edits() && c.in.Desired.Paused == "":
		return e
	}
	for _, x := range e.Certs {
		if c.revoked(x) {
			c.refuse(e.Key, fmt.Sprintf("%.16s shall be revoked and is published: take it out of the field first",
				x.Fingerprint))
		}
	}
	_, extra := pki.Diff(disk.Certs, e.Certs)
	return e.with(c.hold(spec, path, e, extra))
}

// hold tells which of the extra certificates stay for now.
func (c *computation) hold(spec FileSpec, path string, e Entry, extra []pki.Cert) (stay []pki.Cert) {
	held := make(map[pki.Fingerprint]bool)
	var waiting []Held
	for _, x := range extra {
		if h, wait := c.wait(spec, path, e.Key, x); wait {
			stay, waiting = append(stay, x), append(waiting, h)
		}
		held[x.Fingerprint] = true
	}
	c.unhold(path, held)
	if len(stay) < len(extra) {
		if reason := c.needed(spec, e.Key, slices.Concat(e.Certs, stay), slices.Concat(e.Certs, extra)); reason != "" {
			stay, waiting = extra, nil
			for _, x := range extra {
				waiting = append(waiting, Held{Key: e.Key, Cert: &x, Reason: reason})
			}
		}
	}
	c.plan.Held = append(c.plan.Held, waiting...)
	return stay
}

// unhold forgets the holds of what came back, or is gone.
func (c *computation) unhold(path string, but map[pki.Fingerprint]bool) {
	for h := range c.holds {
		if h.Path == path && h.Cert != (pki.Fingerprint{}) && !but[h.Cert] {
			delete(c.holds, h)
		}
	}
}

// forgotten tells whether nothing can be held at path any more: no field has it, or the lists were read and do
// not name it, and it is not ours.
func (c *computation) forgotten(path string) bool {
	listed, possible := false, false
	for _, r := range c.in.Policy.Files {
		if r.Has(path) {
			listed, possible = listed || c.in.Desired.Listed[r.Field], true
		}
	}
	_, ours := c.owned[path]
	return !possible || listed && c.in.Desired.Verified && !c.paths[path] && !ours
}

// wait decides whether one certificate that the ControllerConfig does not publish has to stay.
func (c *computation) wait(spec FileSpec, path string, k Key, x pki.Cert) (Held, bool) {
	h := Held{Key: k, Cert: &x}
	if c.in.Desired.Paused == "" {
		// A strict field's writer would refuse the file with what strictness refuses.
		unfit := spec.Strict && !x.CA && !spec.Field.List()
		if unfit || c.revoked(x) || c.expired(x) || c.in.Policy.Trust.Hold == 0 || c.in.Policy.Trust.Mirror {
			return h, false
		}
	}
	h.Left, h.Reason = c.left(HoldKey{path, x.Fingerprint}, k.Field)
	return h, h.Reason != ""
}

// waitFile decides the same for a whole file that the ControllerConfig's list no longer names.
func (c *computation) waitFile(k Key, path string, f File) (Held, bool) {
	h := Held{Key: k}
	t := c.in.Policy.Trust
	if c.in.Desired.Paused == "" {
		disk, _ := c.content(f)
		gone := func(x pki.Cert) bool { return c.revoked(x) || c.expired(x) }
		all := len(disk.Certs) > 0 && !slices.ContainsFunc(disk.Certs, func(x pki.Cert) bool { return !gone(x) })
		if all || t.Mirror {
			return h, false
		}
	}
	if t.Hold == 0 && c.in.Desired.Paused == "" {
		return h, false
	}
	h.Left, h.Reason = c.left(HoldKey{Path: path}, k.Field)
	if c.mass() && !c.holds[HoldKey{Path: path}].Confirmed && c.in.Desired.Paused == "" {
		h.Left, h.Reason = 0, massRemoval
	}
	return h, h.Reason != ""
}

// mass tells whether more than half of the files that we own are missing from the ControllerConfig. A mistyped
// name upstream looks like that.
func (c *computation) mass() bool {
	if c.many == nil {
		present, missing := 0, 0
		for path, cl := range c.owned {
			switch {
			case c.paths[path]:
				present++
			case c.in.Observed[cl.Key].Kind == Regular:
				missing++
			}
		}
		many := missing > present
		c.many = &many
	}
	return *c.many
}

// left counts for how long something has been missing, and says how long it still has to stay and
// why; the reason is empty if it may go.
func (c *computation) left(k HoldKey, id Field) (time.Duration, string) {
	limit := c.in.Policy.Trust.Hold
	before, ok := c.holds[k]
	if !ok {
		before = Hold{Boot: c.in.Now.Boot, Since: c.in.Now.Uptime, Seen: c.in.Now.Uptime}
	}
	h := before.now(c.in.Now)
	h.Confirmed = h.Confirmed || c.in.Desired.Now
	if !ok || h.Boot != before.Boot || h.Confirmed != before.Confirmed || h.Seen-before.Seen >= limit/6 {
		c.holds[k] = h // not every look is worth a write: a reboot costs a sixth of the hold at most
	}
	left := limit - h.age()
	switch {
	case c.in.Desired.Paused != "":
		return left, "paused: " + printable.Text(c.in.Desired.Paused)
	case h.Confirmed:
		return 0, ""
	case left > 0:
		return left, waits
	case c.in.Desired.behind(id):
		return 0, unread
	}
	return 0, ""
}

// withoutRevoked takes what is revoked out of content that the ControllerConfig does not publish any more, but
// was kept, as far as the rest will do.
func (c *computation) withoutRevoked(spec FileSpec, e Entry) Entry {
	left := slices.DeleteFunc(slices.Clone(e.Certs), c.revoked)
	if len(left) == len(e.Certs) {
		return e
	}
	if reason := c.needed(spec, e.Key, left, e.Certs); reason != "" {
		for _, x := range e.Certs {
			if c.revoked(x) {
				c.plan.Held = append(c.plan.Held, Held{Key: e.Key, Cert: &x, Reason: reason})
			}
		}
		return e
	}
	e.Data, e.Certs = nil, nil
	return e.with(left)
}

// needed says why the trust that is left would not do, or nothing.
func (c *computation) needed(spec FileSpec, k Key, left, now []pki.Cert) string {
	if !slices.ContainsFunc(left, func(x pki.Cert) bool { return !c.expired(x) }) {
		return "it is the last usable certificate"
	}
	source := c.in.Policy.Trust.Source
	// The kubeconfigs of a host have one CA, and each of them locks somebody out.
	if spec.Field != source && !(spec.Field.FromConfigMap() && source.FromConfigMap()) {
		return ""
	}
	answer, asked := c.in.Answers[pki.SetDigest(left)]
	if asked && answer == "" {
		return ""
	}
	c.plan.Question = &Question{Key: k, Left: left, Now: now}
	if !asked {
		return asking
	}
	return notVerified + answer
}

func (c *computation) expired(x pki.Cert) bool {
	return !c.in.Now.Wall.IsZero() && c.in.Now.Wall.After(x.NotAfter)
}

// revoked tells whether the ControllerConfig names the certificate as one to remove at once.
func (c *computation) revoked(x pki.Cert) bool {
	return c.in.Desired.Verified && c.in.Desired.Paused == "" && slices.Contains(c.in.Desired.Revoked, x.Fingerprint)
}
