// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Stamp is a value that changes whenever Load might give other Settings: it covers name, inode,
// change time, size, mode and owner of all that Load would look at, and reads no file. It costs a few
// system calls a file, for processes that have no inotify.
func (o Options) Stamp() (uint64, error) {
	h := fnv.New64a()
	for _, dir := range o.Watch() {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("configuration: %w", err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				return 0, fmt.Errorf("configuration: %w", err)
			}
			st := info.Sys().(*syscall.Stat_t)
			fmt.Fprintln(h, filepath.Join(dir, e.Name()), st.Ino, st.Ctim.Sec, st.Ctim.Nsec, st.Size, st.Mode, st.Uid, st.Gid)
		}
	}
	return h.Sum64(), nil
}
