// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// check is what the command prints, and the code it exits with.
func (n *node) check(args ...string) (out, code string) {
	n.T.Helper()
	out = n.Run("sh", "-c", "node-cert-agent check "+strings.Join(args, " ")+" 2>&1; echo exit $?")
	i := strings.LastIndex(out, "exit ")
	return out[:i], out[i:]
}

// wantFindings waits until exactly these lines are not ok; each is the beginning of one. The service
// takes a moment to notice what check sees at once.
func (n *node) wantFindings(code string, want ...string) {
	n.T.Helper()
	notOK := regexp.MustCompile(`(?m)^(?:warn|fail) .*$(?:\n      fix: .*$)?`)
	n.Await(strings.Join(append(want, code), "\n"), func() bool {
		out, got := n.check()
		return got == code && slices.EqualFunc(notOK.FindAllString(out, -1), want, strings.HasPrefix)
	})
}

func TestCheckFindsNothingOnAGoodHostAndEachFault(t *testing.T) {
	const cloud = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config"
	n := identified(t)
	n.Run("mkdir", "-p", cloud)
	n.awaitUnit(cluster.Reader, "up to date")
	before, run := n.Run("sh", "-c", "find /etc /usr/local -type f | sort | xargs sha256sum"),
		n.show("InvocationID", "node-cert-agent.service")
	n.wantFindings("exit 0")
	out, _ := n.check()
	for _, line := range []string{"ok    reloader: answers, and reaches systemd\n", "ok    systemd: 252",
		"ok    allowlist: a compromised agent could act on: reload reader.service\n",
		"ok    directory: /etc/kubernetes is writable for the writer\n", "ok    renewal: permitted\n",
		"ok    API server: 127.0.0.1:6443 knows us as node-cert-agent:node:node\n", "ok    identity: until "} {
		if !strings.Contains(out, line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
	if after := n.Run("sh", "-c", "find /etc /usr/local -type f | sort | xargs sha256sum"); after != before ||
		n.show("InvocationID", "node-cert-agent.service") != run {
		t.Errorf("check changed the host from\n%s\nto\n%s", before, after)
	}
	if own := n.Run("node-cert-agent", "certs"); !strings.Contains(own, "CN=first") ||
		!strings.Contains(own, "CN=node-cert-agent:node:node") {
		t.Errorf("certs prints\n%s", own)
	}
	seen, err := n.Host.RunAs(n.Ctx, "nobody", "node-cert-agent", "check")
	if !strings.Contains(seen, "warn  user: not root") || strings.Contains(seen, "fail ") || err != nil {
		t.Errorf("nobody sees, with %v,\n%s", err, seen)
	}

	n.Run("systemctl", "stop", "node-cert-agent-reloader.socket", "node-cert-agent-reloader.service")
	n.wantFindings("exit 1", "fail  reloader: no unit is acted on: ")
	n.Run("systemctl", "start", "node-cert-agent-reloader.socket")
	n.wantFindings("exit 0")

	n.Run("systemctl", "mask", "--now", "polkit.service") // which nothing needs
	n.wantFindings("exit 0")
	n.Run("systemctl", "unmask", "polkit.service")

	for name, text := range map[string]string{"one.service": "[Service]\nExecStart=/bin/sleep infinity\n",
		"two.service": "[Unit]\nRequires=one.service\n[Service]\nExecStart=/bin/sleep infinity\n"} {
		n.Must(n.Host.PutFile("/etc/systemd/system/"+name, host.File{Data: []byte(text)}))
	}
	n.Run("systemctl", "daemon-reload")
	n.Run("systemctl", "start", "one.service", "two.service")
	n.Must(n.Host.PutFile("/etc/node-cert-agent/config.d/60-one.yaml",
		host.File{Data: []byte("apiVersion: config.node-cert-agent.io/v1alpha1\nunits: {one.service: {verb: " +
			"try-restart}}\nfiles: {kubeAPIServerServingCAData: {onChange: [reader.service, one.service]}}\n")}))
	n.wantFindings("exit 1",
		"fail  unit: try-restart one.service would also act on two.service: it is refused\n      fix: add "+
			"`units: {one.service: {alsoAffects: [two.service]}}`")
	n.Run("rm", "/etc/node-cert-agent/config.d/60-one.yaml")

	n.Run("rmdir", cloud)
	n.wantFindings("exit 0", "warn  directory: "+cloud+
		": does not exist; for cloudProviderCAData\n      fix: make it, or turn "+
		"off what goes there: `files: {cloudProviderCAData: {enabled: false}}`")
	n.Run("mkdir", cloud)

	n.Run("mkdir", "/srv/pki")
	n.Must(n.Host.PutFile("/etc/node-cert-agent/config.d/60-one.yaml",
		host.File{Data: []byte("apiVersion: config.node-cert-agent.io/v1alpha1\nfiles: {rootCAData: {path: " +
			"/srv/pki/ca.crt}}\n")}))
	n.wantFindings("exit 1", "fail  directory: /srv/pki is read-only for the writer\n      fix: systemctl restart "+
		"node-cert-agent-writer.service, in case it was replaced meanwhile; else systemctl edit it: [Service] "+
		"ReadWritePaths=-/srv/pki")
	n.Run("rm", "/etc/node-cert-agent/config.d/60-one.yaml")
	n.wantFindings("exit 0")

	n.Run("sh", "-c", "rmdir /etc/docker/certs.d && mkdir /etc/docker/certs.d")
	n.wantFindings("exit 1",
		"fail  directory: /etc/docker/certs.d is read-only for the writer\n      fix: systemctl restart "+
			"node-cert-agent-writer.service")
	n.Run("systemctl", "restart", "node-cert-agent-writer.service")
	n.wantFindings("exit 0")

	n.Run("touch", "/etc/kubernetes/kubelet-ca.key")
	n.wantFindings("exit 0", "warn  file: "+cluster.KubeletCA+" is not written: beside a private key, kubelet-ca.key"+
		"\n      fix: give it another path",
		"warn  service: it refuses kubeAPIServerServingCAData: ")
	n.Run("rm", "/etc/kubernetes/kubelet-ca.key")
	n.wantFindings("exit 0")

	n.Must(n.Host.PutFile("/etc/resolv.conf", host.File{Data: []byte("nameserver 169.254.169.254\n")}))
	n.wantFindings("exit 0", "warn  resolver: the service cannot reach the host's name server 169.254.169.254: "+
		"IPAddressDeny= of its unit denies it\n      fix: systemctl edit")
	n.Must(n.Host.PutFile("/etc/systemd/system/node-cert-agent.service.d/override.conf",
		host.File{Data: []byte("[Service]\nIPAddressDeny=\n")}))
	n.wantFindings("exit 0")

	n.Must(n.Plane.StopAPIServer(n.Ctx, syscall.SIGKILL))
	out, code := n.check()
	if !strings.Contains(out, "fail  API server: 127.0.0.1:6443 does not answer: ") || code != "exit 1" {
		t.Errorf("without an API server: %s\n%s", code, out)
	}
}

func TestCheckFindsNothingWithTheNextSystemdAndAKubeconfig(t *testing.T) {
	n := start(t, cluster.Options{Config: cluster.Config, Host: host.Options{Release: host.Newer}})
	n.Run("mkdir", "-p", "/etc/kubernetes/static-pod-resources/configmaps/cloud-config")
	ca := testpki.NewCA("first")
	n.create(kubeletCA(ca))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, ca)
	n.awaitUnit(cluster.Reader, "up to date")
	out, code := n.check("--kubeconfig", cluster.Kubeconfig)
	if code != "exit 0" || strings.Contains(out, "warn ") || !strings.Contains(out, "ok    reloader: answers") ||
		!strings.Contains(out, "ok    systemd: 257") {
		t.Errorf("%s\n%s", code, out)
	}
	if out, code := n.check(); code != "exit 0" || !strings.Contains(out,
		"warn  identity: not the service's own, which follows: this host has no identity yet\n      fix: node-cert-agent "+
			"check "+
			"--kubeconfig FILE") {
		t.Errorf("without the kubeconfig: %s\n%s", code, out)
	}
}
