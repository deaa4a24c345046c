// SPDX-License-Identifier: Apache-2.0

//go:build real

package host_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/host"
)

const (
	agentSocket  = "/run/node-cert-agent/probe.sock" // of the stand-in
	writerSocket = "/run/node-cert-agent-writer.sock"
)

// target is a unit to reload, or not to.
const target = `[Service]
ExecStart=/bin/sleep infinity
ExecReload=/bin/true
`

// bootUnits boots a host with the product's systemd tree and the stand-in in place of the binary.
func bootUnits(t *testing.T) *host.Host {
	t.Helper()
	standin := compile(t, "./testdata/standin")
	return boot(t, host.Options{
		Name:  "node",
		Trees: []string{"../../systemd", "../../deb/tree"},
		Files: map[string]host.File{
			"/usr/bin/node-cert-agent":            {Data: read(t, standin), Mode: 0o755},
			"/etc/node-cert-agent/test.rules":     {Data: read(t, "testdata/test.rules")},
			"/etc/systemd/system/listed.service":  {Data: []byte(target)},
			"/etc/systemd/system/foreign.service": {Data: []byte(target)},
		},
		Enable: []string{"node-cert-agent.service"},
	})
}

// compile builds a program for the hosts and returns its file.
func compile(t *testing.T, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(pkg))
	build := exec.Command("go", "build", "-o", program, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestUnitsLoadWithoutWarnings(t *testing.T) {
	h := bootUnits(t)
	units := run(t, h, "sh", "-c", "find /usr/lib/systemd/system -maxdepth 1 -type f -name 'node-cert-agent*'")
	if n := len(strings.Fields(units)); n != 9 {
		t.Fatalf("%d units: %s", n, units)
	}
	if out := run(t, h, "sh", "-c", "systemd-analyze verify --man=no "+strings.Join(strings.Fields(units), " ")+" 2>&1 || echo failed"); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	for _, c := range []struct{ want, command string }{
		{"active", "systemctl is-active node-cert-agent.service"},
		{"active", "systemctl is-active node-cert-agent-writer.socket"},
		{"active", "systemctl is-active node-cert-agent-polkit.service"},
		{"active", "systemctl is-active node-cert-agent-writer.service"},
		{"0 loaded units listed.", "systemctl --failed --no-legend; systemctl --failed | tail -n 1 | grep -o '0 loaded units listed.'"},
		{"/usr/sbin/nologin", "getent passwd node-cert-agent | cut -d: -f7"},
		{"700 node-cert-agent", "stat -c '%a %U' /var/lib/node-cert-agent"},
		{"1775 root", "stat -c '%a %U' /run/node-cert-agent"},
		{"660 root node-cert-agent", "stat -c '%a %U %G' " + writerSocket},
		{"755 root root", "stat -c '%a %U %G' /etc/kubernetes/static-pod-resources/configmaps/cloud-config"},
		{"755 root root", "stat -c '%a %U %G' /etc/docker/certs.d"},
		{"700 root root", "stat -c '%a %U %G' /etc/node-cert-agent/bootstrap.d"},
		{"standing in", "systemctl show -P StatusText node-cert-agent.service"},
		{"disabled", "systemctl preset node-cert-agent.service; systemctl is-enabled node-cert-agent.service || true"},
	} {
		if got := run(t, h, "sh", "-c", c.command); got != c.want {
			t.Errorf("%s: %q, want %q", c.command, got, c.want)
		}
	}
}

func TestDirectoriesOfOthersKeepModeAndOwner(t *testing.T) {
	h := bootUnits(t)
	run(t, h, "sh", "-c", "chmod 0751 /etc/kubernetes && chown daemon /etc/docker/certs.d")
	if err := h.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := run(t, h, "stat", "-c", "%a %U", "/etc/kubernetes", "/etc/docker/certs.d"); got != "751 root\n755 daemon" {
		t.Errorf("after tmpfiles ran again: %q", got)
	}
}

// probe asks one half of the stand-in, as the agent's user.
func probe(t *testing.T, h *host.Host, socket, request string) string {
	t.Helper()
	out, err := h.RunAs(t.Context(), "node-cert-agent", "/usr/bin/node-cert-agent", "ask", socket, request)
	if err != nil {
		t.Fatalf("ask %q: %v", request, err)
	}
	return strings.TrimSpace(out)
}

// probes runs a table of requests and the end of the answers they shall have.
func probes(t *testing.T, h *host.Host, socket string, table [][2]string) {
	t.Helper()
	for _, p := range table {
		if got := probe(t, h, socket, p[0]); !strings.HasSuffix(got, p[1]) || (p[1] == "ok") != (got == "ok") {
			t.Errorf("%s: %q, want %q", p[0], got, p[1])
		}
	}
}

const (
	denied   = "permission denied"
	noPriv   = "operation not permitted"
	readOnly = "read-only file system"
	noFamily = "address family not supported by protocol"
	absent   = "no such file or directory"
)

func TestTheAgentWritesNothingButItsOwn(t *testing.T) {
	h := bootUnits(t)
	probes(t, h, agentSocket, [][2]string{
		{"write /var/lib/node-cert-agent/x", "ok"},
		{"write /run/node-cert-agent/x", "ok"},
		{"read /proc/sys/kernel/random/boot_id", "ok"},
		{"list /etc/kubernetes", "ok"},
		{"socket inet", "ok"},
		{"socket inet6", "ok"},
		{"connect /run/dbus/system_bus_socket", "ok"},
		{"connect " + writerSocket, "ok"},

		{"write /etc/kubernetes/x", readOnly},
		{"write /etc/docker/certs.d/x", readOnly},
		{"write /etc/polkit-1/rules.d/x", denied},
		{"write /usr/bin/x", readOnly},
		{"chmod /usr/bin/node-cert-agent", readOnly},
		{"write /run/x", readOnly},
		{"write /root/x", denied},
		{"list /etc/node-cert-agent/bootstrap.d", denied},
		{"read /etc/shadow", denied},
		{"connect /run/systemd/private", denied},
		{"suid /run/node-cert-agent/x", noPriv},
		{"setuid 0", noPriv},
		{"mount /run/node-cert-agent", noPriv},
		{"unshare mnt", noPriv},
		{"exec /bin/sh", denied},
		{"runcopy /var/lib/node-cert-agent", denied},
		{"runcopy /run/node-cert-agent", denied},
		{"runcopy /tmp", denied},
		{"runcopy /var/tmp", denied},
		{"runcopy /dev/shm", denied},
		{"socket netlink", noFamily},
		{"socket packet", noFamily},
		{"iouring 1", noPriv},
	})
	if _, err := h.RunAs(t.Context(), "node-cert-agent", "touch", "/etc/kubernetes/x"); err == nil {
		t.Error("the agent's user may write /etc/kubernetes, sandbox or not")
	}
}

func TestTheWriterWritesManagedDirectoriesAndNothingElse(t *testing.T) {
	h := bootUnits(t)
	run(t, h, "sh", "-c", "systemctl stop node-cert-agent-writer.service; mkdir -p /etc/kubernetes/manifests /etc/mco /var/lib/kubelet")
	if state := run(t, h, "systemctl", "show", "-P", "ActiveState", "node-cert-agent-writer.service"); state != "inactive" {
		t.Errorf("before the first request: %s", state)
	}
	probes(t, h, writerSocket, [][2]string{
		{"write /etc/kubernetes/kubelet-ca.crt", "ok"},
		{"write /etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem", "ok"},
		{"write /etc/docker/certs.d/x", "ok"},
		{"write /usr/local/share/ca-certificates/x.crt", "ok"},
		{"write /etc/node-cert-agent/bootstrap.d/x", "ok"},
		{"remove /etc/node-cert-agent/bootstrap.d/x", "ok"},

		{"write /etc/mco/internal-registry-pull-secret.json", readOnly},
		{"write /var/lib/kubelet/kubeconfig", readOnly},
		{"write /etc/x", readOnly},
		{"write /etc/node-cert-agent/config.d/x", readOnly},
		{"write /etc/systemd/system/x.service", readOnly},
		{"write /etc/polkit-1/rules.d/x", denied},
		{"write /usr/bin/x", readOnly},
		{"chmod /usr/bin/node-cert-agent", readOnly},
		{"write /run/x", readOnly},
		{"write /etc/kubernetes/manifests/x", denied},
		{"write /root/x", denied},
		{"write /var/lib/node-cert-agent/x", denied},
		{"read /etc/shadow", denied},
		{"suid /etc/kubernetes/x", noPriv},
		{"chown /etc/kubernetes/x", noPriv},
		{"mount /etc/kubernetes", noPriv},
		{"unshare mnt", noPriv},
		{"exec /bin/sh", denied},
		{"runcopy /etc/kubernetes", denied},
		{"runcopy /etc/docker/certs.d", denied},
		{"runcopy /usr/local/share/ca-certificates", denied},
		{"runcopy /etc/node-cert-agent/bootstrap.d", denied},
		{"runcopy /tmp", denied},
		{"runcopy /var/tmp", denied},
		{"runcopy /dev/shm", denied},
		{"runcopy /run", readOnly},
		{"socket inet", noFamily},
		{"socket inet6", noFamily},
		{"socket unix", noFamily},
		{"socket netlink", noFamily},
		{"dial 127.0.0.1:22", noFamily},
		{"connect /run/dbus/system_bus_socket", noFamily},
		{"iouring 1", noPriv},
	})
	if got := run(t, h, "stat", "-c", "%a %U %G", "/etc/kubernetes/kubelet-ca.crt"); got != "644 root root" {
		t.Errorf("a file of the writer: %s", got)
	}
	status := run(t, h, "sh", "-c", "cat /proc/$(systemctl show -P MainPID node-cert-agent-writer.service)/status")
	for _, line := range []string{"Uid:\t0\t0\t0\t0", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, line) {
			t.Errorf("the writer's status lacks %q", line)
		}
	}
}

func TestTheWriterKnowsItsPeers(t *testing.T) {
	h := bootUnits(t)
	uid := run(t, h, "sh", "-c", "echo uid=$(id -u node-cert-agent) gid=$(id -g node-cert-agent)")
	if got := probe(t, h, writerSocket, "peer"); got != uid {
		t.Errorf("the agent's user is seen as %q, want %q", got, uid)
	}
	if got := run(t, h, "/usr/bin/node-cert-agent", "ask", writerSocket, "peer"); got != "uid=0 gid=0" {
		t.Errorf("root is seen as %q", got)
	}
	_, err := h.RunAs(t.Context(), "daemon", "/usr/bin/node-cert-agent", "ask", writerSocket, "peer")
	if exit := (*host.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(exit.Stderr, denied) {
		t.Errorf("another user: %v", err)
	}
	// From inside the agent's user namespace, too.
	if got := probe(t, h, agentSocket, "connect "+writerSocket); got != "ok" {
		t.Errorf("the agent connects: %s", got)
	}
	waitJournal(t, h, []string{"-u", "node-cert-agent-writer.service"}, func(e host.Entry) bool {
		return strings.HasPrefix(e["MESSAGE"], `asked "peer": uid=0`) && e["_UID"] == "0"
	})
}

// endWriter makes the writer exit and asks the next one. A request that comes before systemd has noticed
// the end is refused, and has to be made again.
func endWriter(t *testing.T, h *host.Host, request string) string {
	t.Helper()
	before := run(t, h, "systemctl", "show", "-P", "MainPID", "node-cert-agent-writer.service")
	if got := probe(t, h, writerSocket, "exit 7"); got != "" {
		t.Fatalf("a writer that exits answered %q", got)
	}
	waitJournal(t, h, []string{"UNIT=node-cert-agent-writer.service", "EXIT_STATUS=7"}, nil)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(10 * time.Second); ; {
		out, err := h.RunAs(t.Context(), "node-cert-agent", "/usr/bin/node-cert-agent", "ask", writerSocket, request)
		after := run(t, h, "systemctl", "show", "-P", "MainPID", "node-cert-agent-writer.service")
		if err == nil && out != "" && after != before {
			return strings.TrimSpace(out)
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no writer answers after one ended: %q, %v", out, err)
		}
	}
}

func TestTheSocketStartsTheWriterAgainHoweverOftenItEnds(t *testing.T) {
	h := bootUnits(t)
	for range 25 { // more than any default limit of systemd
		if got := endWriter(t, h, "write /etc/kubernetes/x"); got != "ok" {
			t.Fatalf("the next writer: %s", got)
		}
	}
}

func TestAWriterThatCannotStartRefusesAndIsNotStartedInALoop(t *testing.T) {
	h := bootUnits(t)
	const dropIn = "/etc/systemd/system/node-cert-agent-writer.service.d/broken.conf"
	if err := h.PutFile(dropIn, host.File{Data: []byte("[Service]\nExecStart=\nExecStart=/usr/bin/node-cert-agent broken\n")}); err != nil {
		t.Fatal(err)
	}
	run(t, h, "sh", "-c", "systemctl daemon-reload; systemctl stop node-cert-agent-writer.service")
	starts := func() int {
		out, err := h.Journal(t.Context(), "UNIT=node-cert-agent-writer.service", "JOB_TYPE=start", "--output=cat")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(out, "Starting ")
	}
	before := starts()
	const requests = 3
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range requests {
		if out, err := h.RunAs(ctx, "node-cert-agent", "/usr/bin/node-cert-agent", "ask", writerSocket, "peer"); err == nil && out != "" {
			t.Errorf("a writer that cannot start answered %q", out)
		}
	}
	if ctx.Err() != nil {
		t.Fatal("whoever asks a writer that cannot start waits")
	}
	run(t, h, "systemctl", "is-active", "node-cert-agent-writer.socket")
	if n := starts() - before; n > requests {
		t.Errorf("%d requests started the writer %d times", requests, n)
	}
	run(t, h, "sh", "-c", "rm "+dropIn+" && systemctl daemon-reload")
	if got := probe(t, h, writerSocket, "write /etc/kubernetes/x"); got != "ok" {
		t.Errorf("once it can start: %s", got)
	}
}

func TestAReplacedDirectoryIsWritableForTheNextWriter(t *testing.T) {
	h := bootUnits(t)
	probes(t, h, writerSocket, [][2]string{{"write /etc/docker/certs.d/x", "ok"}})
	run(t, h, "sh", "-c", "rm -r /etc/docker/certs.d && mkdir /etc/docker/certs.d")
	probes(t, h, writerSocket, [][2]string{{"write /etc/docker/certs.d/x", readOnly}})
	if got := endWriter(t, h, "write /etc/docker/certs.d/x"); got != "ok" {
		t.Errorf("the next writer: %s", got)
	}
}

// unitCall is a call of systemd's manager by the agent's user.
func unitCall(t *testing.T, h *host.Host, method, unit string) string {
	t.Helper()
	_, err := h.RunAs(t.Context(), "node-cert-agent", "busctl", "call", "org.freedesktop.systemd1",
		"/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", method, "ss", unit, "replace")
	if exit := (*host.ExitError)(nil); errors.As(err, &exit) {
		return strings.TrimSpace(exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "ok"
}

func TestSystemdHoldsTheAllowlist(t *testing.T) {
	h := bootUnits(t)
	run(t, h, "systemctl", "start", "listed.service", "foreign.service")
	const refused = "Call failed: Access denied" // org.freedesktop.DBus.Error.AccessDenied
	for _, c := range []struct{ method, unit, want string }{
		{"ReloadUnit", "listed.service", "ok"},
		{"ReloadUnit", "foreign.service", refused},
		{"RestartUnit", "listed.service", refused},
		{"StartUnit", "listed.service", refused},
		{"StopUnit", "listed.service", refused},
		{"StartUnit", "reboot.target", refused},
		{"ReloadUnit", "missing.service", refused},
	} {
		if got := unitCall(t, h, c.method, c.unit); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.method, c.unit, got, c.want)
		}
	}
	waitJournal(t, h, []string{"UNIT=listed.service"}, func(e host.Entry) bool {
		return strings.HasPrefix(e["MESSAGE"], "Reloaded listed.service")
	})
}

func TestARestartOfTheAgentRendersItsRuleAgain(t *testing.T) {
	h := bootUnits(t)
	const rule = "/etc/polkit-1/rules.d/50-node-cert-agent.rules"
	run(t, h, "rm", rule)
	run(t, h, "systemctl", "restart", "node-cert-agent.service")
	if got := run(t, h, "stat", "-c", "%a %U %G", rule); got != "644 root root" {
		t.Errorf("the rule: %s", got)
	}
	run(t, h, "systemctl", "stop", "node-cert-agent.service")
	run(t, h, "stat", rule)
	if state := run(t, h, "stat", "-c", "%F", "/run/node-cert-agent"); state != "directory" {
		t.Errorf("the runtime directory after a stop: %s", state)
	}
}

func TestWithoutPolkitTheAgentStartsAndMayDoNothing(t *testing.T) {
	h := bootUnits(t)
	run(t, h, "systemctl", "stop", "node-cert-agent.service", "polkit.service")
	run(t, h, "sh", "-c", "mv /etc/polkit-1 /etc/polkit-2 && systemctl mask --now polkit.service && systemctl start listed.service node-cert-agent.service")
	if got := unitCall(t, h, "ReloadUnit", "listed.service"); got == "ok" {
		t.Error("a reload went through without polkit")
	} else {
		t.Logf("without polkit: %s", got)
	}
	if failed := run(t, h, "systemctl", "--failed", "--no-legend"); failed != "" {
		t.Errorf("units failed: %s", failed)
	}
}
