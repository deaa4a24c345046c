// SPDX-License-Identifier: Apache-2.0

//go:build real

package approver

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// config is a kubeconfig of the approver for the given address of the API server.
func (c *cluster) config(server string) string {
	c.t.Helper()
	const account = "system:serviceaccount:node-cert-agent:node-cert-controller"
	file, err := c.Kubeconfig(server, account, "system:serviceaccounts", "system:serviceaccounts:node-cert-agent")
	must.Do(c.t, err)
	return file
}

func TestTheSystemdServiceApprovesWithoutPrivilege(t *testing.T) {
	c := start(t)
	install := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(install, "usr/bin"), 0o755))
	must.Do(t, os.Link(binary, filepath.Join(install, "usr/bin/node-cert-controller")))
	const server = "127.0.0.1:6443"
	kubeconfig, err := os.ReadFile(c.config("https://" + server))
	must.Do(t, err)
	h, err := host.Boot(t.Context(), host.Options{
		Trees: []string{"../../packaging/controller", install},
		Files: map[string]host.File{"/etc/node-cert-agent/controller.kubeconfig": {Data: kubeconfig, Mode: 0o600}},
	})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, h.Stop()) })
	u, err := url.Parse(c.URL())
	must.Do(t, err)
	port, err := h.Listen(t.Context(), server, u.Host)
	must.Do(t, err)
	t.Cleanup(func() { port.Close() })
	_, err = h.Run(t.Context(), "systemctl", "start", "node-cert-controller.service")
	must.Do(t, err)

	c.node("a")
	c.issued(c.send(c.token("abcdef", csr.BootstrapGroup, ""), newClaim(t, "a")))
	status, err := h.Run(t.Context(), "sh", "-c",
		"cat /proc/$(systemctl show -P MainPID node-cert-controller.service)/status")
	must.Do(t, err)
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1",
		"Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("the process has not %q:\n%s", want, status)
		}
	}
	if strings.Contains(status, "Uid:\t0") {
		t.Error("the process is root")
	}
	exposure, err := h.Run(t.Context(), "systemd-analyze", "security", "--no-pager", "--threshold=20",
		"node-cert-controller.service")
	if lines := strings.Split(strings.TrimSpace(exposure), "\n"); err != nil {
		t.Errorf("systemd rates the service %s: %v", lines[len(lines)-1], err)
	} else {
		t.Log(lines[len(lines)-1])
	}
}

func TestTheDeploymentIsAdmittedAsItIsMeant(t *testing.T) {
	c := start(t)
	c.kubectl("wait", "deployment/node-cert-controller", "-n", "node-cert-agent", "--for=jsonpath={.status.replicas}=2",
		"--timeout=40s")
	c.until("the pods are made", func() bool {
		return strings.Count(c.kubectl("get", "pods", "-n", "node-cert-agent", "-o", "name"), "\n") == 2
	})
	got := c.kubectl("get", "pods", "-n", "node-cert-agent", "-o",
		`jsonpath={range .items[*]}{.spec.priority} {.spec.hostNetwork} {.spec.containers[*].securityContext}{"\n"}{end}`)
	for line := range strings.Lines(got) {
		if want := `2000000000 true {"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"readOnlyRootFilesystem":true}`; strings.TrimSpace(line) != want {
			t.Errorf("a pod is made with %s, want %s", line, want)
		}
	}
}
