// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"io"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// fingerprintsPerLine is how many fingerprints stand in one line. A file with more of them has several lines,
// because journald cuts a line at 48 KiB (LineMax= in journald.conf(5)).
const fingerprintsPerLine = 128

// records says what is done for a peer, on the log of the process that does it: whoever asked cannot
// change or leave out these lines. In plain mode it is nil and says nothing; there the agent's own
// records do.
type records struct {
	log  io.Writer
	peer frame.Peer
}

// recordedBy is l with such records.
func (l *Local) recordedBy(r *records) *Local {
	other := *l
	other.records = r
	return &other
}

// print writes lines that belong together, at once. If the log does not take them, what they record is done
// nevertheless: stale trust kills a node, a missing line does not.
func (r *records) print(lines ...string) {
	if r == nil || len(lines) == 0 {
		return
	}
	var b bytes.Buffer
	for _, l := range lines {
		fmt.Fprintf(&b, "%s uid=%d pid=%d\n", l, r.peer.UID, r.peer.PID)
	}
	_, _ = r.log.Write(b.Bytes())
}

// effect is one file that a commit will change.
type effect struct {
	key    plan.Key
	path   string
	remove bool
	before plan.File
	after  plan.Digest
	size   int        // of what comes, in bytes
	certs  []pki.Cert // of what comes
}

// lines describe e. Of a secret nothing is shown but digests.
func (e effect) lines() (all []string) {
	var added, removed []string
	if !e.key.Field.Secret() {
		added, removed = compare(e.before.Data, e.certs)
	}
	verb := "writes"
	if e.remove {
		verb = "removes"
	}
	start := fmt.Sprintf("<5>writer %s: field=%q entry=%q path=%q before=%s after=%s", verb, e.key.Field, e.key.Name,
		e.path, cmp.Or(e.before.Digest.String(), "none"), cmp.Or(e.after.String(), "none"))
	for {
		a := added[:min(len(added), fingerprintsPerLine)]
		r := removed[:min(len(removed), fingerprintsPerLine-len(a))]
		added, removed = added[len(a):], removed[len(r):]
		all = append(all, fmt.Sprintf("%s added=%s removed=%s", start,
			cmp.Or(strings.Join(a, ","), "none"), cmp.Or(strings.Join(r, ","), "none")))
		if len(added)+len(removed) == 0 {
			return all
		}
	}
}

// compare gives the fingerprints of the certificates that are only in certs, and of those that are
// only in the file before. There a block counts whether or not it can be parsed.
func compare(before []byte, certs []pki.Cert) (added, removed []string) {
	now, then := map[pki.Fingerprint]bool{}, map[pki.Fingerprint]bool{}
	for _, c := range certs {
		now[c.Fingerprint] = true
	}
	for block, rest := pem.Decode(before); block != nil; block, rest = pem.Decode(rest) {
		fp := pki.Fingerprint(sha256.Sum256(block.Bytes))
		if block.Type == "CERTIFICATE" && !now[fp] && !then[fp] {
			removed = append(removed, fp.String())
		}
		then[fp] = true
	}
	for _, c := range certs {
		if !then[c.Fingerprint] {
			added = append(added, c.Fingerprint.String())
		}
	}
	return added, removed
}

// announce says what a commit will do, each file with what is there now. A file of which that cannot
// be said is an error, by which the commit is not begun; and so is one for which there is no room.
func (l *Local) announce(effects []effect, targets []disk.Target) error {
	if l.records == nil {
		return nil
	}
	onDisk := make([]disk.Query, len(targets))
	for i, t := range targets {
		onDisk[i].Target = t
	}
	lines := make([]string, 0, len(effects))
	growth := map[string]growth{}
	i := 0
	for f := range l.tree.Observe(onDisk) {
		e := effects[i]
		i++
		if f.Kind != plan.Regular && f.Kind != plan.Absent {
			return &Error{Kind: failed, Text: fmt.Sprintf("record %s, which is not written therefore: %s", e.key, f.Reason),
				Untouched: true}
		}
		e.before = f
		lines = append(lines, e.lines()...)
		if spec := l.files[e.key.Field]; spec.Many() && !e.remove {
			growth[spec.Path] = growth[spec.Path].with(spec, f, e.size)
		}
	}
	for _, n := range growth {
		if err := n.fits(l.tree); err != nil {
			return err
		}
	}
	l.records.print(lines...)
	return nil
}

// credentialLine names a credential, and never its content.
func credentialLine(verb string, c bootstrap.Credential) string {
	return fmt.Sprintf("<5>writer %s: credential=%q digest=%s", verb, printable.Text(c.Name), c.Digest)
}

// What a field with a file for each entry may have on a host, whoever made it. An object lists at most
// 1000 entries in each of two lists, which may share a directory. Without these bounds whoever speaks to
// us could fill the file system with valid bundles, and root's reserve in it, too.
const (
	maxEntries = 4096
	maxBytes   = 256 << 20

	// The compiler checks that the largest host has room, and that all of it may be written thrice at once.
	largest = 2 * 1000
	_       = uint(maxEntries - 2*largest)
	_       = uint(burst - 3*(largest+largest/batch+1))
)

// growth is what a commit adds to the files of one path.
type growth struct {
	spec    plan.FileSpec
	entries int
	size    int64
}

// with is n and one file more, of which before is there now.
func (n growth) with(spec plan.FileSpec, before plan.File, size int) growth {
	n.spec = spec
	if before.Kind == plan.Absent {
		n.entries++
	}
	n.size += int64(max(0, size-len(before.Data)))
	return n
}

// fits refuses what is beyond the bounds. Who adds nothing is not asked to remove anything.
func (n growth) fits(tree *disk.Tree) error {
	if n.entries == 0 && n.size == 0 {
		return nil
	}
	entries, size := tree.Weigh(n.spec)
	switch {
	case n.entries > 0 && entries+n.entries > maxEntries:
		return refuse("field %s: %d entries and %d more, more than %d", n.spec.Field, entries, n.entries, maxEntries)
	case n.size > 0 && size+n.size > maxBytes:
		return refuse("field %s: files of %d bytes and %d more, more than %d", n.spec.Field, size, n.size, maxBytes)
	}
	return nil
}
