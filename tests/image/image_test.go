// SPDX-License-Identifier: Apache-2.0

//go:build real

package image

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// layout is an OCI image layout (image-layout.md of the OCI image specification).
type layout struct {
	t   *testing.T
	dir string
}

type descriptor struct {
	Digest   string
	Platform struct{ Architecture, OS string }
}

// read decodes a blob, which its digest names.
func (l layout) read(digest string, into any) {
	l.t.Helper()
	data, err := os.ReadFile(l.blob(digest))
	must.Do(l.t, err)
	must.Do(l.t, json.Unmarshal(data, into))
}

func (l layout) blob(digest string) string {
	return filepath.Join(l.dir, "blobs", strings.Replace(digest, ":", "/", 1))
}

// index is the digest of what the layout has, and the images in it.
func (l layout) index() (digest string, images []descriptor) {
	l.t.Helper()
	var top, list struct{ Manifests []descriptor }
	data, err := os.ReadFile(filepath.Join(l.dir, "index.json"))
	must.Do(l.t, err)
	must.Do(l.t, json.Unmarshal(data, &top))
	if len(top.Manifests) != 1 {
		l.t.Fatalf("the layout has %d entries, want one", len(top.Manifests))
	}
	l.read(top.Manifests[0].Digest, &list)
	return top.Manifests[0].Digest, list.Manifests
}

type config struct {
	Created      string
	Architecture string
	Config       struct {
		User       string
		Entrypoint []string
		Labels     map[string]string
	}
}

// image is the configuration of one, and the files of its layers.
func (l layout) image(d descriptor) (c config, files map[string][]byte) {
	l.t.Helper()
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	l.read(d.Digest, &manifest)
	l.read(manifest.Config.Digest, &c)
	files = map[string][]byte{}
	for _, layer := range manifest.Layers {
		f, err := os.Open(l.blob(layer.Digest))
		must.Do(l.t, err)
		defer f.Close()
		plain, err := gzip.NewReader(f)
		must.Do(l.t, err)
		for archive := tar.NewReader(plain); ; {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must.Do(l.t, err)
			if h.Typeflag != tar.TypeReg {
				continue
			}
			data, err := io.ReadAll(archive)
			must.Do(l.t, err)
			files[fmt.Sprintf("/%s %04o %d:%d", h.Name, h.Mode&0o7777, h.Uid, h.Gid)] = data
		}
	}
	return c, files
}

// program is the file that the image of this machine starts.
const program = "/usr/bin/node-cert-controller 0755 0:0"

// build makes the image in a clone of the last commit, of these architectures.
func build(t *testing.T, umask string, arches ...string) (dir string, l layout) {
	t.Helper()
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	must.Do(t, err)
	dir = filepath.Join(t.TempDir(), "clone"+umask)
	run(t, "", "git", "clone", "--quiet", "--no-hardlinks", strings.TrimSpace(string(root)), dir)
	run(t, dir, "sh", "-c", `umask "$1" && make image VERSION=v0.1.0 IMAGE_ARCHES="$2"`, "sh", umask,
		strings.Join(arches, " "))
	return dir, layout{t, filepath.Join(dir, "dist/node-cert-controller.oci")}
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// The other two architectures are made by the same loop, and take as long again to compile.
func TestTheSameCommitMakesTheSameImage(t *testing.T) {
	_, one := build(t, "022", "amd64", "arm64")
	_, two := build(t, "077", "amd64", "arm64")
	first, images := one.index()
	if second, _ := two.index(); first != second {
		t.Errorf("two builds of one commit are %s and %s", first, second)
	}
	var arches []string
	for _, d := range images {
		arches = append(arches, d.Platform.OS+"/"+d.Platform.Architecture)
		c, files := one.image(d)
		if c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/usr/bin/node-cert-controller"}) {
			t.Errorf("%s: it runs %v as %q", c.Architecture, c.Config.Entrypoint, c.Config.User)
		}
		if got := c.Config.Labels["org.opencontainers.image.version"]; got != "v0.1.0" {
			t.Errorf("%s: the version is %q", c.Architecture, got)
		}
		if len(files) != 2 || files[program] == nil {
			t.Errorf("%s: it has %d files, and the program is %d bytes", c.Architecture, len(files), len(files[program]))
		}
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(arches, want) {
		t.Errorf("it is for %q, want %q", arches, want)
	}
}

// extracted is the program of this machine's image, as a file.
func extracted(t *testing.T, l layout) string {
	t.Helper()
	_, images := l.index()
	at := slices.IndexFunc(images, func(d descriptor) bool { return d.Platform.Architecture == runtime.GOARCH })
	if at < 0 {
		t.Fatalf("there is no image for %s", runtime.GOARCH)
	}
	_, files := l.image(images[at])
	if files[program] == nil {
		t.Fatalf("the image does not have %s", program)
	}
	file := filepath.Join(t.TempDir(), "node-cert-controller")
	must.Do(t, os.WriteFile(file, files[program], 0o755))
	return file
}
