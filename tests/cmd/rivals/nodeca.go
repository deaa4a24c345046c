// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The daemon runs as this user and group.
const user, group = 1001, 0

// mirror is one round: copy what is newer than what is there, and remove what is unknown.
func mirror(source string) error {
	files, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	var failed []error
	known := map[string]bool{}
	for _, f := range files {
		name := f.Name()
		// Only the last one, unlike the machine config daemon.
		if i := strings.LastIndex(name, ".."); i >= 0 {
			name = name[:i] + ":" + name[i+2:]
		}
		known[name] = true
		failed = append(failed, bring(filepath.Join(source, f.Name()), filepath.Join(certsD, name)))
	}
	dirs, err := os.ReadDir(certsD)
	failed = append(failed, err)
	for _, d := range dirs {
		if d.IsDir() && !known[d.Name()] {
			failed = append(failed, os.RemoveAll(filepath.Join(certsD, d.Name())))
		}
	}
	return errors.Join(failed...)
}

// bring copies one file into its directory, unless what is there is newer.
func bring(from, dir string) error {
	if err := os.Mkdir(dir, 0o755); err == nil {
		if err := os.Chown(dir, user, group); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	want, err := os.Stat(from)
	if err != nil {
		return err
	}
	to := filepath.Join(dir, "ca.crt")
	if have, err := os.Stat(to); err == nil && want.ModTime().Before(have.ModTime()) {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	temporary := to + ".tmp"
	return errors.Join(os.WriteFile(temporary, data, 0o644), os.Chown(temporary, user, group), os.Rename(temporary, to))
}
