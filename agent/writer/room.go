// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

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
