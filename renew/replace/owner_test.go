// SPDX-License-Identifier: Apache-2.0

package replace

import (
	"io/fs"
	"syscall"
)

func owner(info fs.FileInfo) [2]uint32 {
	st := info.Sys().(*syscall.Stat_t)
	return [2]uint32{st.Uid, st.Gid}
}
