// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxFile is the largest file that is looked at, in bytes.
const maxFile = 1 << 20

// content is what a file holds.
type content struct {
	data    []byte
	changed time.Time
	// foreign is why the file would not be replaced by us; it completes "the file ...".
	foreign string
}

// read reads a regular file, and no link. Who could have written it is in content.foreign.
func (h Host) read(name string) (content, error) { return h.open(name, unix.O_NOFOLLOW) }

// follow reads a file that a link may lead to.
func (h Host) follow(name string) (content, error) { return h.open(name, 0) }

func (h Host) open(name string, flag int) (c content, err error) {
	// Without waiting: a named pipe would hold us up for ever.
	f, err := os.OpenFile(filepath.Join(h.Root, name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|flag, 0)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return c, fmt.Errorf("%s is a symbolic link: somebody else keeps what is behind it", name)
	case errors.Is(err, fs.ErrNotExist):
		return c, fmt.Errorf("%s does not exist", name)
	case err != nil:
		return c, fmt.Errorf("%s: %v", name, errors.Unwrap(err))
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return c, fmt.Errorf("%s is not a regular file", name)
	}
	if c.data, err = io.ReadAll(io.LimitReader(f, maxFile+1)); err != nil {
		return c, fmt.Errorf("%s: %v", name, errors.Unwrap(err))
	}
	if len(c.data) > maxFile {
		return c, fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	st := info.Sys().(*syscall.Stat_t)
	c.changed = time.Unix(st.Ctim.Unix()).UTC()
	switch {
	case st.Uid != 0 && st.Uid != h.UID:
		c.foreign = fmt.Sprintf("%s belongs to uid %d, not to root", name, st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		c.foreign = fmt.Sprintf("%s can be written by others than its owner: mode %04o", name, info.Mode().Perm())
	}
	return c, nil
}

// names are those of a directory's files; none if it cannot be read.
func (h Host) names(dir string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(h.Root, dir))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
