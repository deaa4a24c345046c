// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Query asks what stands at a target. Bytes are returned only if their digest is not Known.
type Query struct {
	Target
	Known plan.Digest
}

// Observe yields one plan.File for each query, in their order, each read when it is asked for. It
// opens nothing but regular files. What cannot be told is Unreadable, and what may not be replaced
// is Irregular, each with a reason; a file larger than MaxSize is Irregular too. Where a target has an
// Editor, digest and bytes are those of the part.
func (t *Tree) Observe(queries []Query) iter.Seq[plan.File] {
	return func(yield func(plan.File) bool) {
		ses := t.newSession()
		defer ses.close()
		for _, q := range queries {
			if !yield(ses.observe(q)) {
				return
			}
		}
	}
}

func (ses *session) observe(q Query) plan.File {
	at, err := ses.find(q.Target)
	if q.OwnDirectory {
		defer ses.closeDir(at.dir)
	}
	if err != nil {
		return fileError(err)
	}
	if at.info == nil {
		return plan.File{Closed: at.closed(), Directory: at.followed}
	}
	buf := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buf)
	info, err := at.read(buf)
	if errors.Is(err, fs.ErrNotExist) {
		return plan.File{}
	}
	if err != nil {
		return fileError(err)
	}
	data := buf.Bytes()
	if q.Editor != nil {
		if data, err = q.Editor.Get(data); err != nil {
			return plan.File{Kind: plan.Irregular, Reason: err.Error()}
		}
	}
	st := info.Sys().(*syscall.Stat_t)
	f := plan.File{
		Kind: plan.Regular, Digest: plan.DigestOf(data),
		// Special bits included, although no field has them: the difference is what repairs them.
		Mode: info.Mode() &^ fs.ModeType,
		UID:  int(st.Uid), GID: int(st.Gid),
		Changed: time.Unix(st.Ctim.Unix()),
		Closed:  at.closed(), Directory: at.followed,
	}
	if f.Digest != q.Known {
		f.Data = slices.Clone(data)
	}
	return f
}

// closed tells whether the file's own directory belongs to somebody else and is not for us to write
// in. The kernel is asked, because it depends on capabilities, too.
func (loc location) closed() bool {
	if loc.parent == nil || loc.dir == nil || trusted(loc.dir.info) {
		return false
	}
	dir, err := loc.dir.root.Open(".")
	if err != nil {
		return true
	}
	defer dir.Close()
	return errors.Is(unix.Faccessat(int(dir.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS), unix.EACCES)
}

// closeDir closes an own directory at once: a host may have hundreds.
func (ses *session) closeDir(d *directory) {
	if d != nil {
		d.close()
		delete(ses.dirs, d.path)
	}
}

func fileError(err error) plan.File {
	var reason irregular
	var why missing
	switch {
	case errors.As(err, &why):
		return plan.File{Reason: string(why)}
	case errors.As(err, &reason):
		return plan.File{Kind: plan.Irregular, Reason: string(reason)}
	}
	return plan.File{Kind: plan.Unreadable, Reason: err.Error()}
}

// buffers spare the heap a copy of every file at every query.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// read reads the file at s into buf, which it empties first. The file must still be the one that
// was found: os.Root follows links, and here none may be followed.
func (loc location) read(buf *bytes.Buffer) (fs.FileInfo, error) {
	// Without O_NONBLOCK the open would wait, should the file have become a fifo.
	f, err := loc.dir.root.OpenFile(loc.base, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, unwrapPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, unwrapPath(err)
	}
	if !os.SameFile(info, loc.info) {
		return nil, errors.New("changed while it was being read")
	}
	if info.Size() > MaxSize {
		return nil, irregular(fmt.Sprintf("a file of %d bytes, more than %d", info.Size(), MaxSize))
	}
	buf.Reset()
	// One byte more than there should be, so that ReadFrom meets the end without growing.
	buf.Grow(int(info.Size()) + bytes.MinRead)
	n, err := buf.ReadFrom(io.LimitReader(f, info.Size()+1))
	if err != nil {
		return nil, unwrapPath(err)
	}
	if n != info.Size() {
		return nil, errors.New("changed while it was being read")
	}
	return info, nil
}
