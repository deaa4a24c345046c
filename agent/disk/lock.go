// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const lockFile = "lock"

// ErrLocked is what Lock fails with while another process works on the directory.
var ErrLocked = errors.New("is in use by another process")

// Lock takes the directory for this process, until it ends or calls release. The file that is locked
// stays and holds the process ID of who took it last. The error matches ErrLocked if somebody else
// has it. Source: flock(2).
func (d *Directory) Lock() (release func(), err error) {
	f, err := d.root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening %s/%s: %w", d.path, lockFile, unwrapPath(err))
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, unix.EWOULDBLOCK) {
			var pid [16]byte
			n, _ := f.ReadAt(pid[:], 0)
			return nil, fmt.Errorf("%s %w (process %.16s)", d.path, ErrLocked, strings.TrimSpace(string(pid[:n])))
		}
		return nil, fmt.Errorf("locking %s: %w", d.path, err)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // for people
	}
	return func() { _ = f.Close() }, nil
}
