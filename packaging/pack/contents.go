// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// entry is one of `contents` in a description.
type entry struct {
	Source      string `yaml:"src"`
	Destination string `yaml:"dst"`
	Type        string `yaml:"type"`
	Packager    string `yaml:"packager"`
	Expand      bool   `yaml:"expand"`
	FileInfo    struct {
		Mode fs.FileMode `yaml:"mode"`
	} `yaml:"file_info"`
}

// contents are the files of a description for an architecture, by destination, without those that are
// Debian's alone. Sources are relative to the working directory.
func contents(file, arch string) ([]entry, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var description struct {
		Contents []entry `yaml:"contents"`
	}
	if err := yaml.Unmarshal(text, &description); err != nil {
		return nil, fmt.Errorf("%s: %v", file, err)
	}
	var out []entry
	for _, e := range description.Contents {
		if e.Expand {
			e.Source = strings.ReplaceAll(e.Source, "${ARCH}", arch)
		}
		switch {
		case e.Packager == "deb" || e.Type == "dir": // directories are made with what is in them
			continue
		case e.Type != "" && e.Type != "doc" && e.Type != "license":
			return nil, fmt.Errorf("%s: %s: this program does not know the type %q", file, e.Destination, e.Type)
		case !path.IsAbs(e.Destination) || path.Clean(e.Destination) != e.Destination || e.FileInfo.Mode == 0:
			return nil, fmt.Errorf("%s: %s: want an absolute path and a mode", file, e.Destination)
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b entry) int { return cmp.Compare(a.Destination, b.Destination) })
	return out, nil
}

// install lays the files out below dir, whatever the umask.
func install(list []entry, dir string) error {
	for _, e := range list {
		data, err := os.ReadFile(e.Source)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, e.Destination)
		if err := directories(filepath.Dir(to)); err != nil {
			return err
		}
		// A program that runs cannot be written to, but it can be replaced.
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.WriteFile(to, data, e.FileInfo.Mode); err != nil {
			return err
		}
		if err := os.Chmod(to, e.FileInfo.Mode); err != nil {
			return err
		}
	}
	return nil
}

// directories makes dir and those above it with mode 0755, and leaves what exists as it is.
func directories(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := directories(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// archive writes the files as a compressed tar, relative to the root. Directories are not in it: to
// unpack it on a host changes the mode of none.
func archive(list []entry, epoch time.Time, out io.Writer) error {
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	files := tar.NewWriter(compressed)
	for _, e := range list {
		data, err := os.ReadFile(e.Source)
		if err != nil {
			return err
		}
		head := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(e.Destination, "/"), Size: int64(len(data)),
			Mode: int64(e.FileInfo.Mode), Uname: "root", Gname: "root", ModTime: epoch, Format: tar.FormatUSTAR}
		if err := files.WriteHeader(head); err != nil {
			return fmt.Errorf("%s: %w", e.Destination, err)
		}
		if _, err := io.Copy(files, bytes.NewReader(data)); err != nil {
			return err
		}
	}
	if err := files.Close(); err != nil {
		return err
	}
	return compressed.Close()
}
