// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"syscall"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// acl is where access rights beyond the mode are, see acl(5).
const acl = "system.posix_acl_access"

// Stage writes what shall replace the i-th file beside it, under a name that begins with a dot, with the
// mode, owner, access list and SELinux label of the old one, and brings it to stable storage. A group that
// cannot be given is an error if it has rights that others have not: its readers would be locked out.
func (h *Held) Stage(i int, data []byte) error {
	h.discard(i)
	f := &h.files[i]
	if len(data) > MaxSize {
		return fmt.Errorf("stage %s: %d bytes, more than %d", f.path, len(data), MaxSize)
	}
	next, err := renameio.NewPendingFile(f.base, renameio.WithRoot(f.dir.root))
	if err != nil {
		return fmt.Errorf("stage %s: %w", f.path, unwrapPath(err))
	}
	if err = f.fill(next.File, data); err != nil {
		_ = next.Cleanup()
		return fmt.Errorf("stage %s: %w", f.path, unwrapPath(err))
	}
	f.next, f.name = next.File, path.Base(next.Name())
	return nil
}

func (f *heldFile) fill(next *os.File, data []byte) error {
	// As in write: the lock tells a sweep that this is no leftover.
	if err := unix.Flock(int(next.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	l := label(f.old)
	if !bytes.Equal(l, label(next)) && unix.Fsetxattr(int(next.Fd()), selinux, l, 0) != nil {
		relabel(next, f.dir.handle) // a policy may allow no more
	}
	if err := f.giveRights(next); err != nil {
		return err
	}
	if _, err := next.Write(data); err != nil {
		return err
	}
	return next.Sync()
}

// giveRights gives a fresh file the mode, owner and access list of the old one, while it is still empty.
func (f *heldFile) giveRights(next *os.File) error {
	mode := f.info.Mode().Perm()
	if err := next.Chmod(mode); err != nil {
		return err
	}
	info, err := next.Stat()
	if err != nil {
		return err
	}
	old, now := f.info.Sys().(*syscall.Stat_t), info.Sys().(*syscall.Stat_t)
	if old.Uid != now.Uid || old.Gid != now.Gid {
		err := next.Chown(int(old.Uid), int(old.Gid))
		if err != nil && (old.Uid != now.Uid || mode>>3&^mode&0o7 != 0) {
			return err
		}
	}
	var list [4096]byte
	n, err := unix.Fgetxattr(int(f.old.Fd()), acl, list[:])
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	if err == nil {
		err = unix.Fsetxattr(int(next.Fd()), acl, list[:n], 0)
	}
	if err != nil {
		return fmt.Errorf("access list: %w", err)
	}
	return nil
}

// discard removes what is staged for the i-th file.
func (h *Held) discard(i int) {
	f := &h.files[i]
	if f.next == nil {
		return
	}
	_ = f.dir.root.Remove(f.name) // or the next sweep does
	_ = f.next.Close()
	f.next = nil
}
