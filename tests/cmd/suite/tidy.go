// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// tidy fails if `go mod tidy` would change the go.mod or go.sum of a module of this repository.
//
// The module cache answers for what was checked before, the module proxy for the rest. Where it is out of reach, a
// module that the cache does not answer for is named as not checked, and fails nothing.
func tidy() error {
	dirs, err := modules(".")
	for _, dir := range dirs {
		err = errors.Join(err, tidyModule(dir))
	}
	return err
}

// modules are the folders below top with a go.mod.
func modules(top string) (dirs []string, err error) {
	err = filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && p != top && (strings.HasPrefix(d.Name(), ".") || d.Name() == "build") {
			return fs.SkipDir
		}
		if err == nil && d.Name() == "go.mod" {
			dirs = append(dirs, filepath.Dir(p))
		}
		return err
	})
	return dirs, err
}

func tidyModule(dir string) error {
	diff, said, err := tidyDiff(dir, "GOPROXY=off")
	if err != nil && diff == "" {
		diff, said, err = tidyDiff(dir)
	}
	switch {
	case err == nil:
		fmt.Printf("ok    %s\n", dir)
		return nil
	case diff != "":
		return fmt.Errorf("%s is not tidy; run `go mod -C %s tidy`:\n%s", dir, dir, diff)
	case exec.Command("go", "list", "-m", "-versions", "golang.org/x/sys").Run() != nil:
		fmt.Printf("not checked: %s, since the module proxy is out of reach\n", dir)
		return nil
	}
	return fmt.Errorf("%s: %w\n%s", dir, err, said)
}

// tidyDiff is what `go mod tidy` would change, and what it said about it.
func tidyDiff(dir string, env ...string) (diff, said string, err error) {
	var out, messages bytes.Buffer
	cmd := exec.Command("go", "mod", "-C", dir, "tidy", "-diff")
	cmd.Env, cmd.Stdout, cmd.Stderr = slices.Concat(os.Environ(), env), &out, &messages
	err = cmd.Run()
	return out.String(), messages.String(), err
}
