// SPDX-License-Identifier: Apache-2.0

//go:build real

package host_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// crashEnv makes the test binary boot a host, print its directory and wait to be killed.
const crashEnv = "HOST_TEST_CRASH"

func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) == "" {
		os.Exit(m.Run())
	}
	h, err := host.Boot(context.Background(), host.Options{Name: "crash"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(h.Dir())
	select {}
}

func boot(t *testing.T, opts host.Options) *host.Host {
	t.Helper()
	start := time.Now()
	h, err := host.Boot(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("ready after %d ms", time.Since(start).Milliseconds())
	return h
}

func run(t *testing.T, h *host.Host, command ...string) string {
	t.Helper()
	out, err := h.Run(t.Context(), command...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// waitJournal waits for an entry, but not for ever.
func waitJournal(t *testing.T, h *host.Host, args []string, accept func(host.Entry) bool) host.Entry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	e, err := h.WaitJournal(ctx, args, accept)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestTwoHostsOfTheSameNameAreWhollyApart(t *testing.T) {
	if _, err := host.Root(t.Context(), host.Same); err != nil { // not part of the time to boot
		t.Fatal(err)
	}
	for range 2 {
		t.Run("host", func(t *testing.T) {
			t.Parallel()
			h := boot(t, host.Options{Name: "node-1", Files: map[string]host.File{"/etc/one/two": {Data: []byte("x"),
				Mode: 0o600, UID: 7}}})
			for _, c := range []struct{ want, command string }{
				{"node-1", "hostname"},
				{"running", "systemctl is-system-running"},
				{"running", "systemctl start polkit && systemctl is-system-running"},
				{"600 7 0 x", "stat -c '%a %u %g' /etc/one/two | tr '\\n' ' '; cat /etc/one/two"},
				{"755 0", "stat -c '%a %u' /etc/one"},
				{"755 0", "stat -c '%a %u' /"},
				{"0::/init.scope", "tail -n 1 /proc/1/cgroup"},
				{"lo", "ls /sys/class/net"},
				{"32", "journalctl -n 1 -o json -o cat --output-fields=_MACHINE_ID -F _MACHINE_ID | tr -d '\\n' | wc -c"},
			} {
				if got := run(t, h, "sh", "-c", c.command); got != c.want {
					t.Errorf("%s: %q, want %q", c.command, got, c.want)
				}
			}
		})
	}
}

func TestRunReportsStatusAndStderr(t *testing.T) {
	h := boot(t, host.Options{})
	out, err := h.Run(t.Context(), "sh", "-c", "echo out; echo err >&2; exit 3")
	var exit *host.ExitError
	if out != "out\n" || !errors.As(err, &exit) || exit.Code != 3 || exit.Stderr != "err\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if got, err := h.RunAs(t.Context(), "daemon", "id"); err != nil ||
		got != "uid=1(daemon) gid=1(daemon) groups=1(daemon)\n" {
		t.Errorf("id as daemon: %q, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.Run(ctx, "sh", "-c", "sleep 1000; true"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("command longer than its context: %v", err)
	}
	if got, err := h.Run(t.Context(), "pidof", "sleep"); err == nil {
		t.Errorf("the command outlived its context: %s", got)
	}
	start := time.Now() // a host that does not stop is killed after 20 seconds
	if err := h.Stop(); err != nil || time.Since(start) > 15*time.Second {
		t.Errorf("stop after an interrupted command: %v after %v", err, time.Since(start))
	}
}

func TestFilesAndJournalOutliveKillAndReboot(t *testing.T) {
	h := boot(t, host.Options{})
	bootID := run(t, h, "cat", "/proc/sys/kernel/random/boot_id")
	if err := h.PutFile("/var/lib/kept", host.File{Data: []byte("kept")}); err != nil {
		t.Fatal(err)
	}
	if err := h.PutFile("/var/run/link/out", host.File{}); err == nil {
		t.Error("a file was put through an absolute link")
	}
	for what, again := range map[string]func() error{
		"reboot": func() error { return h.Reboot(t.Context()) },
		"kill": func() error {
			h.Kill()
			if _, err := h.Run(t.Context(), "true"); err == nil {
				t.Error("a killed host runs commands")
			}
			return h.Start(t.Context())
		},
	} {
		run(t, h, "sh", "-c", "echo before "+what+" | systemd-cat -t test; touch /run/gone; touch /etc/"+what)
		waitJournal(t, h, []string{"-t", "test"}, func(e host.Entry) bool { return e["MESSAGE"] == "before "+what })
		start := time.Now()
		if err := again(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		t.Logf("%s took %d ms", what, time.Since(start).Milliseconds())
		if got := run(t, h, "sh", "-c",
			"cat /var/lib/kept; ls /run/gone; ls /etc/"+what+" || true"); got != "kept/etc/"+what {
			t.Errorf("after %s: %q", what, got)
		}
		if out, err := h.Journal(t.Context(), "-t", "test", "-o", "cat"); err != nil ||
			!strings.Contains(out, "before "+what) {
			t.Errorf("journal after %s: %q, %v", what, out, err)
		}
	}
	if run(t, h, "cat", "/proc/sys/kernel/random/boot_id") == bootID {
		t.Error("the boot ID is the same after two boots")
	}
}

func TestWaitJournalSeesEntriesThatComeLater(t *testing.T) {
	h := boot(t, host.Options{})
	type result struct {
		e   host.Entry
		err error
	}
	got := make(chan result)
	go func() {
		e, err := h.WaitJournal(t.Context(), []string{"-t", "later"},
			func(e host.Entry) bool { return strings.HasSuffix(e["MESSAGE"], "3") })
		got <- result{e, err}
	}()
	if err := h.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		run(t, h, "sh", "-c", fmt.Sprintf("echo line %d | systemd-cat -t later -p notice", i))
	}
	if r := <-got; r.err != nil || r.e["MESSAGE"] != "line 3" || r.e["PRIORITY"] != "5" {
		t.Errorf("got %v, %v", r.e, r.err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if e, err := h.WaitJournal(ctx, []string{"-t", "never"}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an entry that never comes: %v, %v", e, err)
	}
}

// echo serves lines back.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	return l.Addr().String()
}

func TestPortsLeadBothWaysAndCanFallSilent(t *testing.T) {
	h := boot(t, host.Options{})
	const inside = "127.0.0.1:6443"
	if c, err := h.Dial(t.Context(), inside); err == nil {
		c.Close()
		t.Fatal("a port is open that nobody opened")
	}
	p, err := h.Listen(t.Context(), inside, echo(t))
	if err != nil {
		t.Fatal(err)
	}
	script := `exec 3<>/dev/tcp/127.0.0.1/6443 && echo hello >&3 && read -r x <&3 && echo "$x"`
	if got := run(t, h, "bash", "-c", script); got != "hello" {
		t.Errorf("from the host outwards: %q", got)
	}
	c, err := h.Dial(t.Context(), inside) // in and out again
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lines := bufio.NewReader(c)
	say := func(s string) { fmt.Fprintln(c, s) }
	hear := func(d time.Duration) (string, error) {
		c.SetReadDeadline(time.Now().Add(d))
		return lines.ReadString('\n')
	}
	say("one")
	if s, err := hear(10 * time.Second); s != "one\n" {
		t.Errorf("heard %q, %v", s, err)
	}
	p.Pause()
	say("two")
	if s, err := hear(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("paused, and heard %q, %v", s, err)
	}
	p.Resume()
	if s, err := hear(10 * time.Second); s != "two\n" {
		t.Errorf("heard %q, %v", s, err)
	}
	if err := h.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := run(t, h, "bash", "-c", script); got != "hello" {
		t.Errorf("after a reboot: %q", got)
	}
	p.Pause()
	p.Close()
	if s, err := hear(10 * time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("closed, and heard %q, %v", s, err)
	}
	if out, err := h.Run(t.Context(), "bash", "-c", script); err == nil {
		t.Errorf("the closed port answered %q", out)
	}
}

// traces lists what is left on this machine of the host in dir.
func traces(t *testing.T, dir string) (left []string) {
	t.Helper()
	machine := filepath.Base(dir)
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), machine) {
		left = append(left, "a mount")
	}
	if out, err := exec.Command("pgrep", "-f", machine).Output(); err == nil {
		left = append(left, "process "+string(out))
	}
	for _, pattern := range []string{dir, "/sys/fs/cgroup/*" + machine, "/sys/fs/cgroup/*/*" + machine,
		"/run/systemd/nspawn/*/*" + machine + "*", filepath.Dir(dir) + "/.*" + machine + "*"} {
		m, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, m...)
	}
	return left
}

func TestNothingIsLeftBehind(t *testing.T) {
	h := boot(t, host.Options{})
	if len(traces(t, h.Dir())) < 4 {
		t.Fatalf("the test is blind: %q", traces(t, h.Dir()))
	}
	start := time.Now()
	if err := errors.Join(h.Stop(), h.Stop()); err != nil {
		t.Fatal(err)
	}
	t.Logf("stop took %d ms", time.Since(start).Milliseconds())
	if left := traces(t, h.Dir()); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if err := h.Start(t.Context()); err == nil {
		t.Error("a stopped host started")
	}
}

func TestAHostThatCannotBootLeavesNothingAndSaysWhy(t *testing.T) {
	before, _ := filepath.Glob("/sys/fs/cgroup/*/node-cert-agent-host-*")
	_, err := host.Boot(t.Context(), host.Options{Nspawn: []string{"--bind=/does/not/exist"}})
	if err == nil || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("got %v", err)
	}
	if after, _ := filepath.Glob("/sys/fs/cgroup/*/node-cert-agent-host-*"); len(after) > len(before) {
		t.Errorf("left behind: %q", after)
	}
}

func TestBootClearsWhatADeadTestLeft(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir, err := bufio.NewReader(out).ReadString('\n')
	dir = strings.TrimSpace(dir)
	if err != nil || !filepath.IsAbs(dir) {
		t.Fatalf("the other test said %q, %v", dir, err)
	}
	h := boot(t, host.Options{})
	if len(traces(t, dir)) < 4 {
		t.Errorf("a boot beside a living host disturbed it: %q", traces(t, dir))
	}
	cmd.Process.Kill()
	cmd.Wait()
	if len(traces(t, dir)) == 0 {
		t.Error("the test is blind: nothing to clear")
	}
	boot(t, host.Options{})
	if left := traces(t, dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	run(t, h, "true")
}
