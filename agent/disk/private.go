// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// maxPrivate bounds how many files of one directory are read, and maxPrivateSize each of them.
const (
	maxPrivate     = 16
	maxPrivateSize = 512 << 10
)

// Private is a file that only its owner may know: its content, or why it is not to be used.
type Private struct {
	Name    string
	Data    []byte
	Refused string
}

// Private reads the files of a directory whose names end in suffix, by name; hidden ones are passed
// over. A file counts only if it is a regular one, belongs to us and is closed to everybody else,
// and so must the directory: what others can write would be believed, and what they can read is no
// secret. A directory that does not exist has no files.
func (t *Tree) Private(dir, suffix string) (files []Private, err error) {
	v := t.visit()
	defer v.close()
	if _, err := t.stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	d, err := v.open(dir)
	if err != nil {
		return nil, err
	}
	if why := exposed(d.info); why != "" {
		return nil, fmt.Errorf("directory %s %s", dir, why)
	}
	names := slices.DeleteFunc(d.names(), func(n string) bool {
		return strings.HasPrefix(n, ".") || !strings.HasSuffix(n, suffix)
	})
	slices.Sort(names)
	if len(names) > maxPrivate {
		return nil, fmt.Errorf("directory %s has %d files, more than %d", dir, len(names), maxPrivate)
	}
	for _, name := range names {
		f := Private{Name: name}
		if f.Data, err = v.private(path.Join(dir, name)); err != nil {
			f.Refused = err.Error()
		}
		files = append(files, f)
	}
	return files, nil
}

func (v *visit) private(p string) ([]byte, error) {
	at, err := v.find(Target{Path: p})
	if err != nil {
		return nil, err
	}
	if at.info == nil {
		return nil, errors.New("is gone")
	}
	var buf bytes.Buffer
	info, err := at.read(&buf)
	if err != nil {
		return nil, err
	}
	if why := exposed(info); why != "" {
		return nil, errors.New(why)
	}
	if buf.Len() > maxPrivateSize {
		return nil, fmt.Errorf("has %d bytes, more than %d", buf.Len(), maxPrivateSize)
	}
	return buf.Bytes(), nil
}

// exposed says why a file or directory is not private; its text completes "the file ...".
func exposed(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return "has no owner that can be seen"
	case int(st.Uid) != os.Geteuid():
		return fmt.Sprintf("belongs to uid %d, want %d", st.Uid, os.Geteuid())
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Sprintf("has mode %04o, want nothing for group and others", info.Mode().Perm())
	}
	return ""
}
