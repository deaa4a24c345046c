// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Change publishes Data at a target, or as the part of it that the target's Editor sets.
type Change struct {
	Target
	Data []byte
}

// Removal takes a file away that still has the given digest.
type Removal struct {
	Target
	Digest plan.Digest
}

// Commit carries out changes and then removals, each in the order given.
//
// Everything is staged first: written beside its target with its final mode and owner, and fsynced.
// An error up to here leaves nothing visible changed and no temporary file. Then the files are
// renamed, the removals done, and each directory that changed is fsynced once. The first step that
// fails ends the commit; what was done before it is fsynced all the same, and the error names what
// was and what was not done. After any error the caller must not act on the new files: it looks
// again and commits again.
//
// Where a target has an Editor, the file is read when it is staged, and must not have been changed by
// anybody else when it is renamed over. Between that check and the rename a change can be lost: no
// system call renames over a file only if it still is a certain one.
//
// A removal whose file is gone already makes that durable; one whose file has other bytes is an error. An
// own directory is removed with its file if nothing else is in it.
//
// Errors match ErrReadOnly, ErrReplaced and ErrUntouched where they apply.
func (t *Tree) Commit(changes []Change, removals []Removal) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	ses := t.newSession()
	defer ses.close()
	staged, err := ses.stage(changes)
	if err == nil {
		err = ses.carryOut(staged, removals)
	} else {
		err = fmt.Errorf("%w; %w", err, ErrUntouched)
	}
	ses.unmake()
	unsafe := ses.sync()
	if err == nil {
		err = unsafe
	} else if unsafe != nil {
		err = fmt.Errorf("%w; %w", err, unsafe)
	}
	return err
}

// staged is a complete new version, waiting for its rename.
type staged struct {
	*renameio.PendingFile
	location
	path string
	read os.FileInfo // of the file that a part was changed in, else nil
}

// stage prepares all changes, or none.
func (ses *session) stage(changes []Change) (all []staged, err error) {
	defer func() {
		if err != nil {
			discard(all)
			all = nil
		}
	}()
	for _, c := range changes {
		s, err := ses.prepare(c)
		if err != nil {
			return all, fmt.Errorf("stage %s: %w", c.Path, unwrapPath(err))
		}
		all = append(all, s)
	}
	ses.startWriteback(all)
	for _, s := range all {
		if err := s.Sync(); err != nil {
			return all, fmt.Errorf("stage %s: %w", s.path, unwrapPath(err))
		}
	}
	return all, nil
}

// startWriteback makes changes cheap; both halves are measured in the decision note. Writeback of all is
// started before any is waited for, so that the file system's journal takes them in few transactions.
// And what is about to be replaced is held open until after the last rename, which then need not
// wait while the file system frees the old content. Neither can fail in a way that matters.
func (ses *session) startWriteback(all []staged) {
	for _, s := range all {
		if len(all) > 1 {
			_ = unix.SyncFileRange(int(s.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		}
		if s.info == nil {
			continue
		}
		if old, err := s.dir.root.OpenFile(s.base, unix.O_PATH, 0); err == nil {
			ses.held = append(ses.held, old)
		}
	}
}

// prepare writes one change into a temporary file beside its target.
func (ses *session) prepare(c Change) (staged, error) {
	if len(c.Data) > MaxSize {
		return staged{}, fmt.Errorf("%d bytes, more than %d", len(c.Data), MaxSize)
	}
	at, err := ses.find(c.Target)
	if err != nil {
		return staged{}, err
	}
	if at.dir == nil {
		if at.dir, err = ses.mkdir(at.parent, at.own); err != nil {
			return staged{}, err
		}
	}
	if err := at.dir.openForSync(); err != nil {
		return staged{}, err
	}
	var read os.FileInfo
	if c.Editor != nil {
		if c, read, err = at.edit(c); err != nil {
			return staged{}, err
		}
	}
	// No option for the mode: renameio would leave its file behind if chmod failed.
	f, err := renameio.NewPendingFile(at.base, renameio.WithRoot(at.dir.root))
	if err != nil {
		return staged{}, err
	}
	if c.KeepMode && at.info != nil && plan.Narrower(at.info.Mode(), c.Mode) {
		c.Mode = at.info.Mode().Perm()
	}
	relabel(f.File, at.dir.handle)
	if err := write(f.File, c); err != nil {
		_ = f.Cleanup()
		return staged{}, err
	}
	return staged{PendingFile: f, location: at, path: c.Path, read: read}, nil
}

// edit turns the change of a part into one of the file, with the mode and owner that it has.
func (loc location) edit(c Change) (Change, os.FileInfo, error) {
	var buf bytes.Buffer
	read, err := loc.read(&buf)
	if err != nil {
		return c, nil, err
	}
	if c.Data, err = c.Editor.Set(buf.Bytes(), c.Data); err != nil {
		return c, nil, err
	}
	st := read.Sys().(*syscall.Stat_t)
	c.Mode, c.UID, c.GID = read.Mode().Perm(), int(st.Uid), int(st.Gid)
	return c, read, nil
}

// write gives a fresh file its lock, mode, owner and content.
func write(f *os.File, c Change) error {
	// The lock tells a sweep that this is no leftover; it goes with the descriptor.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// Before the owner: afterwards it would need CAP_FOWNER.
	if mode := c.Mode.Perm(); info.Mode().Perm() != mode {
		if err := f.Chmod(mode); err != nil {
			return err
		}
	}
	st := info.Sys().(*syscall.Stat_t)
	if (c.UID >= 0 && c.UID != int(st.Uid)) || (c.GID >= 0 && c.GID != int(st.Gid)) {
		if err := f.Chown(c.UID, c.GID); err != nil {
			return err
		}
	}
	_, err = f.Write(c.Data)
	return err
}

func discard(all []staged) {
	for _, s := range all {
		// What cannot be removed is left to the next sweep.
		_ = s.Cleanup()
	}
}

// mkdir makes an own directory. The mode is set apart because of the umask; a kill between the two
// leaves a directory that is merely too private, and with the umask of our unit not even that.
func (ses *session) mkdir(parent *directory, name string) (*directory, error) {
	if err := parent.openForSync(); err != nil {
		return nil, err
	}
	if err := parent.root.Mkdir(name, 0o755); err != nil {
		return nil, err
	}
	parent.dirty = true
	d, err := ses.openDir(parent, name)
	if err == nil && d == nil {
		err = ErrReplaced
	}
	if err == nil && d.info.Mode().Perm() != 0o755 {
		if err = d.openForSync(); err == nil {
			err = d.handle.Chmod(0o755)
		}
	}
	if err != nil {
		_ = rmdir(parent, name)
		return nil, err
	}
	d.made = true
	ses.made = append(ses.made, d)
	return d, nil
}

// unmake removes the directories that were made for files that then did not come.
func (ses *session) unmake() {
	for _, d := range ses.made {
		if !d.dirty && rmdir(d.parent, path.Base(d.path)) == nil {
			ses.closeDir(d)
		}
	}
}

// rmdir is not os.Root.Remove, which would also unlink a file.
func rmdir(parent *directory, name string) error {
	if err := unix.Unlinkat(int(parent.handle.Fd()), name, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("rmdir: %w", err)
	}
	return nil
}

// carryOut makes the commit visible, step by step, and stops at the first that fails.
func (ses *session) carryOut(all []staged, removals []Removal) error {
	var done, left []string
	var failure error
	for i, s := range all {
		if failure = s.publish(); failure != nil {
			failure = fmt.Errorf("publish %s: %w", s.path, unwrapPath(failure))
			if i == 0 {
				failure = fmt.Errorf("%w; %w", failure, ErrUntouched)
			}
			discard(all[i:])
			for _, s := range all[i:] {
				left = append(left, s.path)
			}
			break
		}
		done = append(done, s.path)
	}
	for _, r := range removals {
		if failure == nil {
			if failure = ses.remove(r); failure == nil {
				done = append(done, r.Path)
				continue
			}
			failure = fmt.Errorf("remove %s: %w", r.Path, unwrapPath(failure))
		}
		left = append(left, r.Path)
	}
	if failure == nil {
		return nil
	}
	return fmt.Errorf("%w (done: %s; not done: %s)", failure, cmp.Or(strings.Join(done, ", "), "none"),
		cmp.Or(strings.Join(left, ", "), "none"))
}

// unchanged compares two looks at one path. The change time covers content, mode and owner.
func unchanged(before, now os.FileInfo) bool {
	return os.SameFile(before, now) && before.Size() == now.Size() &&
		before.Sys().(*syscall.Stat_t).Ctim == now.Sys().(*syscall.Stat_t).Ctim
}

// publish renames the staged file over its target. This is what CloseAtomicallyReplace does, less
// its second fsync: see docs/decisions/0001-stage-then-rename.md.
func (s staged) publish() error {
	if s.read != nil {
		if now, err := s.dir.root.Lstat(s.base); err != nil || !unchanged(s.read, now) {
			return errors.New("somebody else changed the file meanwhile")
		}
	}
	if err := s.dir.root.Rename(path.Base(s.Name()), s.base); err != nil {
		return err
	}
	s.dir.dirty = true
	_ = s.Close()
	return nil
}

// remove unlinks a file that is still ours, and then its own directory.
func (ses *session) remove(r Removal) error {
	at, err := ses.find(r.Target)
	if err != nil {
		return err
	}
	if at.dir == nil { // gone, perhaps by our own hand a moment ago and not durably
		if err := at.parent.openForSync(); err != nil {
			return err
		}
		at.parent.dirty = true
		return nil
	}
	if r.Editor != nil {
		return errors.New("only part of it is ours")
	}
	if err := at.dir.openForSync(); err != nil {
		return err
	}
	if at.info != nil {
		var buf bytes.Buffer
		if _, err := at.read(&buf); err != nil {
			return err
		}
		if plan.DigestOf(buf.Bytes()) != r.Digest {
			return errors.New("its bytes are not those that we wrote")
		}
		if err := unix.Unlinkat(int(at.dir.handle.Fd()), at.base, 0); err != nil {
			return fmt.Errorf("unlink: %w", err)
		}
	}
	at.dir.dirty = true
	if !r.OwnDirectory {
		return nil
	}
	if err := at.parent.openForSync(); err != nil {
		return err
	}
	switch err := rmdir(at.parent, at.own); {
	case errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST):
		return nil
	case err != nil:
		return err
	}
	at.parent.dirty = true
	ses.closeDir(at.dir)
	return nil
}

// sync brings every directory that changed to stable storage, and makes sure that it still is the
// directory that people see. All are tried; the first failure is reported.
func (ses *session) sync() (first error) {
	for _, d := range ses.dirs {
		if !d.dirty {
			continue
		}
		err := d.handle.Sync()
		if err == nil {
			err = ses.confirm(d)
		}
		if err != nil && first == nil {
			first = fmt.Errorf("directory %s: %w", d.path, unwrapPath(err))
		}
	}
	return first
}

func (ses *session) confirm(d *directory) error {
	var now os.FileInfo
	var err error
	if d.parent != nil {
		now, err = d.parent.root.Lstat(path.Base(d.path))
	} else {
		now, err = ses.tree.stat(d.path)
	}
	if err != nil || !os.SameFile(now, d.info) {
		return ErrReplaced
	}
	return nil
}

// relabel gives a fresh file the SELinux type of its directory, if it has another. Where a policy says nothing
// of who makes a file in a directory, the kernel has done that already. The reference policy says it of services
// in /etc: what they make there is etc_runtime_t, which not all may read that read etc_t. Polkitd may not
// (seen with Debian 12), and the allowlist was never in force.
//
// It never fails. A policy that forbids it says so in the audit log, `node-cert-agent check` shows the label,
// and a file with a label that was not meant is better than an old one.
func relabel(f, dir *os.File) {
	has, wants := label(f), label(dir)
	if l := retyped(has, wants); l != nil && !bytes.Equal(l, has) {
		_ = unix.Fsetxattr(int(f.Fd()), selinux, l, 0)
	}
}

// selinux is where a label is, see selinux(8).
const selinux = "security.selinux"

// label is empty if there is none.
func label(f *os.File) []byte {
	var buf [256]byte
	n, err := unix.Fgetxattr(int(f.Fd()), selinux, buf[:])
	if err != nil {
		return nil
	}
	return buf[:n]
}

// retyped is the label of a file with the type of a directory's; nil if one of the two is none. A label is
// user:role:type:level, the last missing where the policy has no levels, and ends with a NUL. User and level are
// left: to change them takes more.
func retyped(file, dir []byte) []byte {
	f, d := bytes.SplitN(file, []byte(":"), 4), bytes.SplitN(dir, []byte(":"), 4)
	if len(f) < 3 || len(d) != len(f) {
		return nil
	}
	f[2] = d[2]
	return bytes.Join(f, []byte(":"))
}
