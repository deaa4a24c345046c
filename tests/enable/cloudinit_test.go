// SPDX-License-Identifier: Apache-2.0

//go:build real

package enable

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// cloudConfig is what an image for this container would have: where the user data is, and neither network
// nor locales to set up.
const cloudConfig = `datasource_list: [NoCloud]
network: {config: disabled}
locale: false
`

// repository is a repository of Debian's with our package, as files of a host.
func (e *env) repository(t *testing.T) map[string]host.File {
	t.Helper()
	debs, err := filepath.Glob(filepath.Join(e.dir, "dist/node-cert-agent_*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("the packages are %q, %v", debs, err)
	}
	deb, err := os.ReadFile(debs[0])
	if err != nil {
		t.Fatal(err)
	}
	const dir = "/srv/packages/"
	index := fmt.Sprintf("%s\nFilename: ./agent.deb\nSize: %d\nSHA256: %x\n\n",
		strings.TrimSpace(e.must(t, "dpkg-deb --field dist/node-cert-agent_*.deb")), len(deb), sha256.Sum256(deb))
	return map[string]host.File{
		dir + "agent.deb": {Data: deb},
		dir + "Packages":  {Data: []byte(index)},
		"/etc/apt/sources.list.d/node-cert-agent.list": {Data: []byte("deb [trusted=yes] file:" + dir + " ./\n")},
	}
}

// TestCloudInitInstallsAndEnables has the user data in a NoCloud seed. The unit on the allowlist is the runtime's
// name with a service behind it that notes its starts; it runs before the agent does, and has to be restarted.
func TestCloudInitInstallsAndEnables(t *testing.T) {
	e := sharedEnv(t)
	provision, err := script(install, "cloud-init")
	if err != nil {
		t.Fatal(err)
	}
	e.must(t, provision)
	userData := e.read(t, "user-data")
	if bytes.Contains(userData, []byte("TOKEN_KUBECONFIG")) {
		t.Error("the user data has no bootstrap kubeconfig")
	}
	files := firstBoot(e.repository(t))
	files["/var/lib/cloud/seed/nocloud/user-data"] = host.File{Data: userData, Mode: 0o600}
	files["/var/lib/cloud/seed/nocloud/meta-data"] = host.File{Data: []byte("{instance-id: one, local-hostname: cloud}\n")}
	files["/etc/cloud/cloud.cfg.d/90-test.cfg"] = host.File{Data: []byte(cloudConfig)}
	files[testPreset] = host.File{Data: []byte(noNetwork)}
	files["/etc/systemd/system/containerd.service"] = standIn("containerd")
	n := boot(t, host.Options{Name: "cloud", Packages: []string{"cloud-init"}, Files: files,
		Enable: []string{"containerd.service"}})
	n.awaitSynced()
	n.awaitGone(tokenFile)
	n.want("stat -c '%a %U' /etc/node-cert-agent/bootstrap.d", "700 root")
	n.awaitLoads("containerd", "start\nstart")
	n.Await("the end of cloud-init", func() bool {
		_, err := os.Stat(n.Host.Path("/run/cloud-init/result.json"))
		return err == nil
	})
	n.want("cloud-init status --long | grep -c 'status: done'", "1")
}
