// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAVersionIsOneThatBothDpkgAndRpmOrder(t *testing.T) {
	epoch := time.Date(2026, 11, 21, 10, 20, 30, 0, time.UTC)
	for describe, want := range map[string]string{
		"v1.2.3":                       "1.2.3",
		"v1.2.3-rc.1":                  "1.2.3~rc.1",
		"v1.2.3-4-gabcdef0":            "1.2.3+4.gabcdef0",
		"v1.2.3-rc.1-4-gabcdef0-dirty": "1.2.3~rc.1+4.gabcdef0+dirty",
		"0.0.0-dev":                    "0.0.0~dev",
		"08d1c80":                      "0.0.0~20261121102030.08d1c80",
		"1234567-dirty":                "0.0.0~20261121102030.1234567+dirty",
	} {
		got, err := packageVersion(describe, epoch)
		if err != nil || got != want || strings.Contains(got, "-") {
			t.Errorf("%s became %q, %v; want %q", describe, got, err, want)
		}
	}
	for _, describe := range []string{"", "v1", "latest", "v1.2.3 ", "1.2.3;id", "v1.2.3-RC"} {
		if got, err := packageVersion(describe, epoch); err == nil {
			t.Errorf("%q became %q, want an error", describe, got)
		}
	}
}

// description writes one with a file and a program, and returns its name.
func description(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{"arm64-program": "program", "page": "page", "nfpm.yaml": `contents:
- {src: "${ARCH}-program", dst: /usr/bin/program, expand: true, file_info: {mode: 0755}}
- {src: page, dst: /usr/share/page, file_info: {mode: 0644}}
- {src: nothing, dst: /usr/share/debian, packager: deb, file_info: {mode: 0644}}
- {dst: /usr/share/own, type: dir, file_info: {mode: 0700}}
` + more} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "nfpm.yaml"
}

func TestInstallingLaysOutExactlyTheDescribedFiles(t *testing.T) {
	d := description(t, "")
	to := filepath.Join(t.TempDir(), "image")
	for range 2 { // again over what is there
		if err := run([]string{"install", d, "arm64", to}, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	err := filepath.WalkDir(to, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := e.Info()
		got = append(got, i.Mode().String()+" "+strings.TrimPrefix(p, to))
		return err
	})
	want := []string{"drwxr-xr-x ", "drwxr-xr-x /usr", "drwxr-xr-x /usr/bin", "-rwxr-xr-x /usr/bin/program",
		"drwxr-xr-x /usr/share", "-rw-r--r-- /usr/share/page"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("installed %q, %v; want %q", got, err, want)
	}
}

func TestATarBelongsToRootAndDoesNotKnowWhenItWasMade(t *testing.T) {
	d := description(t, "")
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	var out bytes.Buffer
	if err := run([]string{"tar", d, "arm64"}, &out); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "root" || h.ModTime.Unix() != 1000000000 {
			t.Errorf("%s: %+v", h.Name, h)
		}
	}
	if !slices.Equal(names, []string{"usr/bin/program", "usr/share/page"}) || !z.ModTime.IsZero() {
		t.Errorf("the tar holds %q, made at %v", names, z.ModTime)
	}
}

func TestWhatADescriptionCannotMeanIsAnError(t *testing.T) {
	for sentence, more := range map[string]string{
		"a type that only nfpm knows": `- {src: page, dst: /usr/x, type: symlink, file_info: {mode: 0644}}`,
		"no mode":                     `- {src: page, dst: /usr/x}`,
		"a relative path":             `- {src: page, dst: usr/x, file_info: {mode: 0644}}`,
		"a path that leads elsewhere": `- {src: page, dst: /usr/../../x, file_info: {mode: 0644}}`,
		"a file that is missing":      `- {src: missing, dst: /usr/x, file_info: {mode: 0644}}`,
	} {
		d := description(t, more)
		if err := run([]string{"install", d, "arm64", t.TempDir()}, io.Discard); err == nil {
			t.Errorf("%s: no error", sentence)
		}
	}
}

func TestTheSBOMNamesEveryModuleAndTheStandardLibrary(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"sbom", os.Args[0]}, &out); err != nil {
		t.Fatal(err)
	}
	var doc spdx
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, p := range doc.Packages {
		ids[p.Name] = p.ID
		if p.Download == "" || p.Licence == "" || p.Copyright == "" || p.Declared == "" {
			t.Errorf("%s lacks what SPDX requires", p.Name)
		}
	}
	for _, m := range []string{"stdlib", "go.yaml.in/yaml/v3"} {
		if !slices.Contains(doc.Relationships, spdxRelation{"SPDXRef-program", "STATIC_LINK", ids[m]}) || ids[m] == "" {
			t.Errorf("%s is not said to be linked in", m)
		}
	}
	if err := run([]string{"sbom", "pack_test.go"}, io.Discard); err == nil {
		t.Error("a text has an SBOM")
	}
}
