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

// maxSecretFiles bounds how many files of one directory are read, and maxSecretSize each of them.
const (
	maxSecretFiles = 16
	maxSecretSize  = 512 << 10
)

// SecretFile is a file that only its owner may know: its content, or why it is not to be used.
type SecretFile struct {
	Name    string
	Data    []byte
	Refused string
}

// SecretFiles reads the files of a directory whose names end in suffix, by name; hidden ones are passed
// over. A file counts only if it is a regular one, belongs to us and is closed to everybody else,
// and so must the directory: what others can write would be believed, and what they can read is no
// secret. A directory that does not exist has no files.
func (t *Tree) SecretFiles(dir, suffix string) (files []SecretFile, err error) {
	ses := t.newSession()
	defer ses.close()
	if _, err := t.stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	d, err := ses.open(dir)
	if err != nil {
		return nil, err
	}
	if why := checkPrivate(d.info); why != "" {
		return nil, fmt.Errorf("directory %s %s", dir, why)
	}
	names := slices.DeleteFunc(d.names(), func(n string) bool {
		return strings.HasPrefix(n, ".") || !strings.HasSuffix(n, suffix)
	})
	slices.Sort(names)
	if len(names) > maxSecretFiles {
		return nil, fmt.Errorf("directory %s has %d files, more than %d", dir, len(names), maxSecretFiles)
	}
	for _, name := range names {
		f := SecretFile{Name: name}
		if f.Data, err = ses.secretFile(path.Join(dir, name)); err != nil {
			f.Refused = err.Error()
		}
		files = append(files, f)
	}
	return files, nil
}

func (ses *session) secretFile(p string) ([]byte, error) {
	at, err := ses.find(Target{Path: p})
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
	if why := checkPrivate(info); why != "" {
		return nil, errors.New(why)
	}
	if buf.Len() > maxSecretSize {
		return nil, fmt.Errorf("has %d bytes, more than %d", buf.Len(), maxSecretSize)
	}
	return buf.Bytes(), nil
}

// checkPrivate says why a file or directory is not private; its text completes "the file ...".
func checkPrivate(info fs.FileInfo) string {
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
