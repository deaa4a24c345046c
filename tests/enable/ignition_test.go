// SPDX-License-Identifier: Apache-2.0

//go:build real

package enable

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// ignition is where Debian's package has the program, for its initial ramdisk.
const ignition = "/usr/lib/dracut/modules.d/30ignition/ignition"

// noLabels is how Ignition's very last step ends, which labels what the others wrote, on a host without SELinux.
const noLabels = "Ignition failed: failed to handle relabeling: failed to open /etc/selinux/config"

// ignite is a Prepare that applies an Ignition configuration as the first boot of a machine does.
func ignite(t *testing.T, config []byte) func(context.Context, string) error {
	return func(ctx context.Context, root string) error {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.ign"), config, 0o600); err != nil {
			return err
		}
		for _, stage := range []string{"fetch", "files"} {
			cmd := exec.CommandContext(ctx, ignition, "-root", root, "-stage", stage, "-platform", "file", "-log-to-stdout",
				"-config-cache", filepath.Join(dir, "cache.json"), "-state-file", filepath.Join(dir, "state"), "-neednet",
				filepath.Join(dir, "neednet"))
			cmd.Env = append(os.Environ(), "IGNITION_CONFIG_FILE="+filepath.Join(dir, "config.ign"))
			if out, err := cmd.CombinedOutput(); err != nil && !bytes.Contains(out, []byte(noLabels)) {
				return fmt.Errorf("ignition %s: %v\n%s", stage, err, out)
			}
		}
		return nil
	}
}

// layered is the tree of an image that has the agent, with Debian's paths, and nothing that enables it.
func (e *env) layered(t *testing.T) []string {
	t.Helper()
	image := t.TempDir()
	e.must(t, "dpkg-deb --extract dist/node-cert-agent_*.deb "+image)
	return []string{image}
}

func TestIgnitionEnablesAndItsUnitIsReloadedAtTheFirstBoot(t *testing.T) {
	e := sharedEnv(t)
	provision, err := script(install, "Ignition")
	if err != nil {
		t.Fatal(err)
	}
	e.must(t, provision)
	n := boot(t, host.Options{Name: "coreos", Trees: e.layered(t), Prepare: ignite(t, e.read(t, "node.ign")),
		Files:  firstBoot(map[string]host.File{"/etc/systemd/system/crio.service": standIn("crio")}),
		Enable: []string{"crio.service"}})
	n.awaitSynced()
	n.awaitGone(tokenFile)
	n.awaitLoads("crio", "start\nreload")
	n.want("stat -c '%a %U' /etc/node-cert-agent/bootstrap.d", "700 root")
	n.want("cat /etc/systemd/system-preset/20-ignition.preset", "enable node-cert-agent.service")
}
