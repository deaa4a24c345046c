// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountDisk puts a private layer over the shared root. The layer is on the disk of the outer
// machine, not in memory as with nspawn's --volatile: it survives a reboot, and fsync(2) is real.
func mountDisk(base, dir string) error {
	for _, d := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	// The upper directory lends its mode to the root of the host, whatever our umask is.
	if err := os.Chmod(filepath.Join(dir, "upper"), 0o755); err != nil {
		return err
	}
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", base, filepath.Join(dir, "upper"),
		filepath.Join(dir, "work"))
	if err := unix.Mount("overlay", filepath.Join(dir, "root"), "overlay", 0, opts); err != nil {
		return fmt.Errorf("mount an overlay of %s on %s: %w", base, dir, err)
	}
	return nil
}

// install fills the host's layer before its first boot.
func (h *Host) install(ctx context.Context) error {
	dir := filepath.Join(h.dir, "root")
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var id [16]byte
	rand.Read(id[:])
	// A known machine ID, since an unset one makes systemd take every boot for the first.
	for p, s := range map[string]string{"etc/machine-id": hex.EncodeToString(id[:]), "etc/hostname": h.opts.Name} {
		if err := put(root, p, File{Data: []byte(s + "\n")}); err != nil {
			return err
		}
	}
	for _, tree := range h.opts.Trees {
		if err := copyTree(root, tree); err != nil {
			return fmt.Errorf("copy %s to the host: %w", tree, err)
		}
	}
	for p, f := range h.opts.Files {
		if err := put(root, strings.TrimPrefix(p, "/"), f); err != nil {
			return fmt.Errorf("put %s on the host: %w", p, err)
		}
	}
	if len(h.opts.Enable) > 0 {
		_, err = output(ctx, "systemctl", append([]string{"--root", dir, "enable"}, h.opts.Enable...)...)
	}
	if err == nil && h.opts.Prepare != nil {
		err = h.opts.Prepare(ctx, dir)
	}
	return err
}

func copyTree(root *os.Root, tree string) error {
	from := os.DirFS(tree)
	return fs.WalkDir(from, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return mkdirAll(root, p)
		case d.Type()&fs.ModeSymlink != 0:
			to, err := fs.ReadLink(from, p)
			if err != nil {
				return err
			}
			return root.Symlink(to, p)
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		b, err := fs.ReadFile(from, p)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if fi.Mode()&0o100 != 0 {
			mode = 0o755
		}
		return put(root, p, File{Data: b, Mode: mode})
	})
}

// put writes beside the target and renames, so that a running host never sees half a file.
func put(root *os.Root, p string, f File) error {
	if f.Mode == 0 {
		f.Mode = 0o644
	}
	if err := mkdirAll(root, path.Dir(p)); err != nil {
		return err
	}
	tmp := path.Join(path.Dir(p), "."+path.Base(p)+".put")
	err := root.WriteFile(tmp, f.Data, 0o600)
	if err == nil {
		err = root.Chown(tmp, f.UID, f.GID)
	}
	if err == nil {
		err = root.Chmod(tmp, f.Mode.Perm())
	}
	if err == nil {
		err = root.Rename(tmp, p)
	}
	if err != nil {
		_ = root.Remove(tmp)
	}
	return err
}

// mkdirAll makes what is missing and gives it 0755 whatever the umask is.
func mkdirAll(root *os.Root, p string) error {
	if fi, err := root.Stat(p); err == nil && fi.IsDir() {
		return nil
	}
	if err := mkdirAll(root, path.Dir(p)); err != nil {
		return err
	}
	if err := root.Mkdir(p, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return root.Chmod(p, 0o755)
}

// removeDead removes every host whose test process is gone: its lock can be had.
func removeDead(running string) error {
	dirs, err := os.ReadDir(running)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		dir := filepath.Join(running, d.Name())
		f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = remove(dir)
		}
		f.Close()
		if err != nil {
			return fmt.Errorf("clear the left-over host %s: %w", dir, err)
		}
	}
	return nil
}

// remove takes away what a host has on this machine: processes, cgroups, mounts, files.
func remove(dir string) error {
	machine := filepath.Base(dir)
	if err := removeCgroups(machine); err != nil {
		return err
	}
	left := []string{
		filepath.Join(dir, "root"),
		filepath.Join("/run/systemd/nspawn/unix-export", machine),
		filepath.Join("/run/systemd/nspawn/propagate", machine),
	}
	for _, m := range left {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) &&
			!errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
		// Not recursively: were it still mounted, that would empty the host's disk from below.
		if err := os.Remove(m); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(dir)
}
