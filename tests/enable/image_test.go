// SPDX-License-Identifier: Apache-2.0

//go:build real

package enable

import (
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// nodeImage makes a node image of the root that test hosts have, with a stand-in for the one program of
// OpenShift's that the Containerfile runs.
const nodeImage = `image=$(podman from scratch)
disk=$(podman mount $image)
cp -a "$ROOT/." $disk
printf '#!/bin/sh\n[ "$*" = "container commit" ]\n' >$disk/usr/bin/ostree
chmod 0755 $disk/usr/bin/ostree
podman commit --rm --quiet $image ` + baseImage

// layeredImage is the node image that the page builds, as a directory.
func layeredImage(t *testing.T, e *env) string {
	t.Helper()
	root, err := host.Root(t.Context(), host.Same)
	if err != nil {
		t.Fatal(err)
	}
	build, err := script(openShiftPage, "The image")
	if err != nil {
		t.Fatal(err)
	}
	e.must(t, nodeImage, "ROOT="+root)
	e.must(t, build, "IMAGE=localhost/node")
	disk := e.must(t, "podman mount $(podman from --name=node localhost/node)")
	t.Cleanup(func() {
		e.must(t, "podman rm --all >/dev/null; podman rmi --all --force >/dev/null; umount images/store/overlay 2>/dev/null "+
			"|| true")
	})
	return strings.TrimSpace(disk)
}

// TestAnImageOfTheFilesAloneCanBeCopiedFrom is what clusters that build their images need.
func TestAnImageOfTheFilesAloneCanBeCopiedFrom(t *testing.T) {
	e := sharedEnv(t)
	e.must(t, "make tar ARCHES=amd64; podman build --target files -t localhost/files -f "+
		"packaging/openshift/Containerfile dist")
	t.Cleanup(func() {
		e.must(t, "podman rm --all >/dev/null; podman rmi --all --force >/dev/null; umount images/store/overlay 2>/dev/null "+
			"|| true")
	})
	out := e.must(t, "cd $(podman mount $(podman from localhost/files)) && find . -maxdepth 1 -mindepth 1 && find . "+
		"-path ./usr/bin/node-cert-agent -perm 0755")
	if out != "./usr\n./usr/bin/node-cert-agent\n" {
		t.Errorf("the image of the files has %q", out)
	}
}
