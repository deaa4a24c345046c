// SPDX-License-Identifier: Apache-2.0

//go:build real

package host_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

const (
	agentSocket    = "/run/node-cert-agent/probe.sock" // of the stand-in
	writerSocket   = "/run/node-cert-agent-writer.sock"
	reloaderSocket = "/run/node-cert-agent-reloader.sock"
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
			"/usr/bin/node-cert-agent": {Data: read(t, standin), Mode: 0o755},
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
	if out := run(t, h, "sh", "-c", "systemd-analyze verify --man=no "+strings.Join(strings.Fields(units),
		" ")+" 2>&1 || echo failed"); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	for _, c := range []struct{ want, command string }{
		{"active", "systemctl is-active node-cert-agent.service"},
		{"active", "systemctl is-active node-cert-agent-writer.socket"},
		{"active", "systemctl is-active node-cert-agent-reloader.socket"},
		{"inactive", "systemctl is-active node-cert-agent-reloader.service || true"},
		{"active", "systemctl is-active node-cert-agent-writer.service"},
		{"inactive", "systemctl is-active node-cert-agent-signer.socket || true"},
		{"inactive", "systemctl is-active node-cert-agent-renew.service || true"},
		{"0 loaded units listed.", "systemctl --failed --no-legend; systemctl --failed | tail -n 1 | grep -o '0 loaded " +
			"units listed.'"},
		{"/usr/sbin/nologin", "getent passwd node-cert-agent | cut -d: -f7"},
		{"700 node-cert-agent", "stat -c '%a %U' /var/lib/node-cert-agent"},
		{"1775 root", "stat -c '%a %U' /run/node-cert-agent"},
		{"660 root node-cert-agent", "stat -c '%a %U %G' " + writerSocket},
		{"660 root node-cert-agent", "stat -c '%a %U %G' " + reloaderSocket},
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
		{"connect " + writerSocket, "ok"},
		{"connect " + reloaderSocket, "ok"},

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
		{"connect /run/dbus/system_bus_socket", denied},
		{"connect /var/run/dbus/system_bus_socket", denied},
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
	run(t, h, "sh", "-c", "systemctl stop node-cert-agent-writer.service; mkdir -p /etc/kubernetes/manifests /etc/mco "+
		"/var/lib/kubelet")
	if state := run(t, h, "systemctl", "show", "-P", "ActiveState",
		"node-cert-agent-writer.service"); state != "inactive" {
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
		{"list /run/node-cert-agent/config.d", "ok"},
		{"list /run/systemd/journal", absent},
		{"list /run/dbus", absent},
		{"write /run/cluster/x", absent},
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
	for _, line := range []string{"Uid:\t0\t0\t0\t0", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
		"CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, line) {
			t.Errorf("the writer's status lacks %q", line)
		}
	}
}

// As "node-cert-agent writer-dropin" prints it.
func TestTheWriterReachesADirectoryInRunByADropIn(t *testing.T) {
	h := bootUnits(t)
	run(t, h, "mkdir", "/run/cluster")
	if err := h.PutFile("/etc/systemd/system/node-cert-agent-writer.service.d/50-files.conf",
		host.File{Data: []byte("[Service]\nBindPaths=\"-/run/cluster\"\nNoExecPaths=\"-/run/cluster\"\n")}); err != nil {
		t.Fatal(err)
	}
	run(t, h, "sh", "-c", "systemctl daemon-reload && systemctl restart node-cert-agent-writer.service")
	probes(t, h, writerSocket, [][2]string{{"write /run/cluster/x", "ok"}, {"runcopy /run/cluster", denied},
		{"write /run/x", readOnly},
		{"write /run/node-cert-agent/x", readOnly}, {"read /run/node-cert-agent/config.d/x", absent}})
	run(t, h, "sh", "-c", "rmdir /run/node-cert-agent/config.d && mkdir /run/node-cert-agent/config.d && touch "+
		"/run/node-cert-agent/config.d/x")
	probes(t, h, writerSocket, [][2]string{{"read /run/node-cert-agent/config.d/x", "ok"}})
	if got := run(t, h, "stat", "-c", "%U", "/run/cluster/x"); got != "root" {
		t.Errorf("the file on the host is %s's", got)
	}
}

// Clouds hand out the host's credentials at this address; here it is one of the host itself.
func TestTheAgentDoesNotReachTheCloudsMetadata(t *testing.T) {
	h := bootUnits(t)
	if err := h.Own([4]byte{169, 254, 169, 254}); err != nil {
		t.Fatal(err)
	}
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	for _, inside := range []string{"169.254.169.254:80", "127.0.0.1:80"} {
		if _, err := h.Listen(t.Context(), inside, outside.Addr().String()); err != nil {
			t.Fatal(err)
		}
		c, err := h.Dial(t.Context(), inside)
		if err != nil {
			t.Fatalf("nobody reaches %s: %v", inside, err)
		}
		c.Close()
	}
	probes(t, h, agentSocket, [][2]string{{"dial 127.0.0.1:80", "ok"}, {"dial 169.254.169.254:80", "i/o timeout"}})
	denied := strings.Fields(show(t, h, "IPAddressDeny", "node-cert-agent.service"))
	if slices.Sort(denied); !slices.Equal(denied, []string{"169.254.169.254/32", "fd00:ec2::254/128"}) {
		t.Errorf("denied are %s", denied)
	}
}

func TestTheReloaderReachesTheBusAndNothingElse(t *testing.T) {
	h := bootUnits(t)
	run(t, h, "sh", "-c", "echo secret >/etc/node-cert-agent/bootstrap.d/x && touch "+
		"/etc/node-cert-agent/config.d/50-x.yaml")
	probes(t, h, reloaderSocket, [][2]string{
		{"connect /run/dbus/system_bus_socket", "ok"},
		{"read /etc/passwd", "ok"},
		{"read /etc/node-cert-agent/config.d/50-x.yaml", "ok"},
		{"list /run/node-cert-agent/config.d", "ok"},

		{"connect /run/systemd/private", absent},
		{"connect /run/systemd/journal/socket", absent},
		{"connect " + writerSocket, absent},
		{"connect " + agentSocket, absent},
		{"list /etc/node-cert-agent/bootstrap.d", absent},
		{"list /run/node-cert-agent/other", absent},
		{"read /etc/shadow", absent},
		{"list /etc/kubernetes", absent},
		{"list /root", absent},
		{"list /var/lib", absent},
		{"write /etc/node-cert-agent/config.d/x", readOnly},
		{"write /run/dbus/x", readOnly},
		{"write /etc/x", readOnly},
		{"write /run/x", readOnly},
		{"write /x", readOnly},
		{"chmod /usr/bin/node-cert-agent", readOnly},
		{"chown /tmp/x", noPriv},
		{"suid /tmp/x", noPriv},
		{"mount /tmp", noPriv},
		{"unshare mnt", noPriv},
		{"exec /bin/sh", absent},
		{"runcopy /tmp", denied},
		{"runcopy /var/tmp", denied},
		{"runcopy /dev/shm", denied},
		{"socket inet", noFamily},
		{"socket inet6", noFamily},
		{"socket netlink", noFamily},
		{"dial 127.0.0.1:22", noFamily},
		{"iouring 1", noPriv},
	})
	status := run(t, h, "sh", "-c", "cat /proc/$(systemctl show -P MainPID node-cert-agent-reloader.service)/status")
	for _, line := range []string{"Uid:\t0\t0\t0\t0", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
		"CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, line) {
			t.Errorf("the reloader's status lacks %q", line)
		}
	}
	_, err := h.RunAs(t.Context(), "daemon", "/usr/bin/node-cert-agent", "ask", reloaderSocket, "peer")
	if exit := (*host.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(exit.Stderr, denied) {
		t.Errorf("another user: %v", err)
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
	var out string
	wait.For(t, "an answer of the next writer", func() bool {
		var err error
		out, err = h.RunAs(t.Context(), "node-cert-agent", "/usr/bin/node-cert-agent", "ask", writerSocket, request)
		after := run(t, h, "systemctl", "show", "-P", "MainPID", "node-cert-agent-writer.service")
		return err == nil && out != "" && after != before
	})
	return strings.TrimSpace(out)
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
	if err := h.PutFile(dropIn,
		host.File{Data: []byte("[Service]\nExecStart=\nExecStart=/usr/bin/node-cert-agent broken\n")}); err != nil {
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
		if out, err := h.RunAs(ctx, "node-cert-agent", "/usr/bin/node-cert-agent", "ask", writerSocket, "peer"); err == nil &&
			out != "" {
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

func TestAStopOfTheAgentLeavesItsDirectory(t *testing.T) {
	h := bootUnits(t)
	run(t, h, "systemctl", "stop", "node-cert-agent.service")
	if state := run(t, h, "stat", "-c", "%F", "/run/node-cert-agent"); state != "directory" {
		t.Errorf("the runtime directory after a stop: %s", state)
	}
}

// The kubelet waits for the agent's READY=1, and so for the end of its start job. An agent that is compromised may put
// off the one for ever, and not the other.
func TestAnAgentThatIsNeverReadyDoesNotKeepTheKubeletFromStarting(t *testing.T) {
	for name, release := range releases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			standin := compile(t, "./testdata/standin")
			h := boot(t, host.Options{Release: release, Trees: []string{"../../systemd", "../../deb/tree"},
				Files: map[string]host.File{
					"/usr/bin/node-cert-agent":                                  {Data: read(t, standin), Mode: 0o755},
					"/etc/systemd/system/node-cert-agent.service.d/extend.conf": {Data: []byte("[Service]\nExecStart=\nExecStart=/usr/bin/node-cert-agent extend\n")},
					"/etc/systemd/system/kubelet.service":                       {Data: []byte(target)},
				}})
			if start, job := show(t, h, "TimeoutStartUSec", "node-cert-agent.service"),
				show(t, h, "JobRunningTimeoutUSec", "node-cert-agent.service"); start != "30s" || job != "35s" {
				t.Errorf("a start may take %s, and its job %s", start, job)
			}
			begun := time.Now()
			run(t, h, "systemctl", "start", "--no-block", "node-cert-agent.service", "kubelet.service")
			state := func(unit string) string { return show(t, h, "ActiveState", unit) }
			wait.For(t, "the agent's start", func() bool {
				return show(t, h, "StatusText", "node-cert-agent.service") == "never ready"
			})
			if got := state("kubelet.service"); got != "inactive" {
				t.Errorf("the kubelet does not wait: %s", got)
			}
			wait.For(t, "the kubelet", func() bool { return state("kubelet.service") == "active" })
			t.Logf("the kubelet started after %v", time.Since(begun).Round(time.Second))
			if got := state("node-cert-agent.service"); got != "activating" {
				t.Errorf("meanwhile the agent is %s", got)
			}
			run(t, h, "systemctl", "stop", "node-cert-agent.service")
		})
	}
}
