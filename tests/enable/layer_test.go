// SPDX-License-Identifier: Apache-2.0

//go:build real

package enable

import (
	"path/filepath"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// TestALayeredImageIsEnabledByItsPreset has the token from the container manager, as a virtual machine would
// have it from its hypervisor.
func TestALayeredImageIsEnabledByItsPreset(t *testing.T) {
	e := sharedEnv(t)
	image := t.TempDir()
	provision, err := script(install, "A layer of the image")
	if err != nil {
		t.Fatal(err)
	}
	e.must(t, provision, "IMAGE="+image)
	n := boot(t, host.Options{Name: "layered", Trees: []string{image}, Files: firstBoot(map[string]host.File{}),
		Nspawn: []string{"--load-credential=bootstrap-kubeconfig:" + filepath.Join(e.dir, "token.kubeconfig")}})
	n.awaitSynced()
	n.want("ls /etc/node-cert-agent/bootstrap.d", "")
}
