// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"fmt"
	"io/fs"
)

// ReadFile returns the content of a file of our own, such as the state store's. Like every read of
// this package it follows no link and takes no more than MaxSize bytes. The error matches
// fs.ErrNotExist if there is no such file.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	ses := t.newSession()
	defer ses.close()
	at, err := ses.find(Target{Path: name})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if at.info == nil {
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
	}
	var buf bytes.Buffer
	if _, err := at.read(&buf); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return buf.Bytes(), nil
}

// WriteFile replaces a file of our own, owned by the caller, atomically and durably. It is a Commit
// of one change.
func (t *Tree) WriteFile(name string, data []byte, mode fs.FileMode) error {
	return t.Commit([]Change{{Target{Path: name, Mode: mode, UID: -1, GID: -1}, data}}, nil)
}
