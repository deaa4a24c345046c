// SPDX-License-Identifier: Apache-2.0

//go:build real

package kubeadm

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// The images, as containerd knows them.
const (
	kubernetes = "localhost/kubernetes:test"
	controller = "localhost/node-cert-controller"
)

// images makes the archives kubernetes.tar and controller.tar in a folder that it returns.
func images(t testing.TB, b controlplane.Binaries) string {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	must.Do(t, os.Mkdir(bin, 0o755))
	must.Do(t, copyFile(filepath.Join(b.Dir, "servers"), filepath.Join(bin, "servers")))
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		must.Do(t, os.Symlink("servers", filepath.Join(bin, name)))
	}
	t.Setenv("CGO_ENABLED", "0")
	command(t, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(bin, "pause"), "./testdata/pause")
	buildah := func(args ...string) {
		t.Helper()
		command(t, "buildah", append([]string{"--root", filepath.Join(dir, "store"), "--runroot", filepath.Join(dir, "run"),
			"--storage-driver", "vfs"}, args...)...)
	}
	buildah("build", "--quiet", "--file", "testdata/images.Containerfile", "--tag", kubernetes, bin)
	buildah("push", "--quiet", kubernetes, "docker-archive:"+filepath.Join(dir, "kubernetes.tar")+":"+kubernetes)
	must.Do(t, os.RemoveAll(filepath.Join(dir, "store")))
	must.Do(t, os.RemoveAll(bin))

	layout := filepath.Join(dir, "controller.oci")
	command(t, "make", "-C", "../..", "image", "VERSION=test", "IMAGE_ARCHES="+runtime.GOARCH, "IMAGE_LAYOUT="+layout)
	command(t, "tar", "-C", layout, "-cf", filepath.Join(dir, "controller.tar"), ".")
	return dir
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func command(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}
