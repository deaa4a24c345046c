// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Sweep removes the temporary files that killed commits left beside the files of these fields, and
// returns their paths. It removes nothing but regular files named like ours (a dot, the name of a
// file that the field could have, 1 to 19 digits), owned by us or by the file's owner, on which no
// commit holds its lock. Beside other programs that write the files it takes none that was
// written within the last minute: they may name theirs the same way, and lock nothing. Whatever cannot be looked at is
// passed over; an error is a leftover that could not be removed.
func (t *Tree) Sweep(specs []plan.FileSpec) (removed []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, spec := range specs {
		ses := t.newSession()
		for _, n := range ses.tempDirs(spec) {
			names, failure := n.sweep(spec)
			removed = append(removed, names...)
			if failure != nil && err == nil {
				err = failure
			}
		}
		ses.close()
	}
	return removed, err
}

// tempDir is a directory in which files of a field live; ours tells their names.
type tempDir struct {
	dir  *directory
	ours func(base string) bool
}

// tempDirs lists the directories of a field that exist.
func (ses *session) tempDirs(spec plan.FileSpec) []tempDir {
	if !spec.Many() {
		at, err := ses.find(Target{Path: spec.Path, FollowLink: spec.FollowLink})
		if err != nil {
			return nil
		}
		return []tempDir{{at.dir, func(base string) bool { return base == at.base }}}
	}
	top, err := ses.open(spec.Directory())
	if err != nil {
		return nil
	}
	if !spec.OwnDirectory() {
		return []tempDir{{top, func(base string) bool { return spec.Has(path.Join(top.path, base)) }}}
	}
	var all []tempDir
	for _, name := range top.names() {
		if !spec.Has(path.Join(top.path, name, path.Base(spec.Path))) {
			continue
		}
		if d, err := ses.openDir(top, name); err == nil && d != nil {
			all = append(all, tempDir{d, func(base string) bool { return base == path.Base(spec.Path) }})
		}
	}
	return all
}

func (d *directory) names() []string {
	if d.openForSync() != nil {
		return nil
	}
	names, _ := d.handle.Readdirnames(-1)
	slices.Sort(names)
	return names
}

// sweep removes the leftovers in one directory.
func (n tempDir) sweep(spec plan.FileSpec) (removed []string, err error) {
	for _, name := range n.dir.names() {
		if !leftover(name, n.ours) {
			continue
		}
		p := path.Join(n.dir.path, name)
		switch gone, failure := n.dir.clear(name, spec); {
		case failure != nil && err == nil:
			err = fmt.Errorf("sweep %s: %w", p, unwrapPath(failure))
		case gone:
			removed = append(removed, p)
		}
	}
	return removed, err
}

// leftover reports whether name is one that renameio gives to the temporary file of one of ours.
func leftover(name string, ours func(base string) bool) bool {
	base, dotted := strings.CutPrefix(name, ".")
	for digits := 1; dotted && digits <= 19 && digits < len(base); digits++ {
		if c := base[len(base)-digits]; c < '0' || c > '9' {
			return false
		}
		// A base may end in digits itself, so every length is tried.
		if ours(base[:len(base)-digits]) {
			return true
		}
	}
	return false
}

// clear removes one leftover, unless it is not ours or is in use. A commit of another process
// between the making of its file and the lock on it could lose that file here; its rename then fails,
// and nothing else happens.
func (d *directory) clear(name string, spec plan.FileSpec) (bool, error) {
	info, err := d.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || len(spec.Beside) > 0 && time.Since(info.ModTime()) < time.Minute {
		return false, nil
	}
	if uid := int(info.Sys().(*syscall.Stat_t).Uid); uid != os.Geteuid() && uid != spec.UID {
		return false, nil
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("flock: %w", err)
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(now, info) {
		return false, err
	}
	err = unix.Unlinkat(int(d.handle.Fd()), name, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("unlink: %w", err)
	}
	return true, nil
}

// Weigh tells how many entries a field with a placeholder has, whoever made them, and how many bytes
// their files have together. What cannot be looked at counts nothing.
func (t *Tree) Weigh(spec plan.FileSpec) (entries int, size int64) {
	ses := t.newSession()
	defer ses.close()
	top, err := ses.open(spec.Directory())
	if err != nil {
		return 0, 0
	}
	for _, name := range top.names() {
		if spec.OwnDirectory() {
			name = path.Join(name, path.Base(spec.Path))
		}
		if !spec.Has(path.Join(top.path, name)) {
			continue
		}
		entries++
		if info, err := top.root.Lstat(name); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
	}
	return entries, size
}
