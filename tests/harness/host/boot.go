// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startLimit = 60 * time.Second
	stopLimit  = 20 * time.Second

	// Signals to systemd, see systemd(1): SIGRTMIN+4 starts poweroff.target, SIGRTMIN+5 reboot.target.
	// SIGRTMIN is 34 in glibc, which systemd is built with.
	sigPoweroff = syscall.Signal(34 + 4)
	sigReboot   = syscall.Signal(34 + 5)

	// exitReboot is systemd-nspawn's status, with --keep-unit, for a container that asked for a reboot.
	exitReboot = 133
)

// boot is one run of the host, from power on to power off. A nil boot is a host never started.
type boot struct {
	cmd    *exec.Cmd
	log    string
	leader int // valid once up is closed

	up     chan struct{} // closed at READY=1
	exited chan struct{} // closed when systemd-nspawn is gone
}

// spawn starts systemd-nspawn.
func (h *Host) spawn() (*boot, error) {
	notify := filepath.Join(h.dir, "notify")
	if err := os.RemoveAll(notify); err != nil {
		return nil, err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	b := &boot{log: filepath.Join(h.dir, "console"), up: make(chan struct{}), exited: make(chan struct{})}
	console, err := os.Create(b.log)
	if err != nil {
		conn.Close()
		return nil, err
	}
	defer console.Close()
	b.cmd = h.command(notify)
	b.cmd.Stdout, b.cmd.Stderr = console, console
	started := make(chan error)
	go func() {
		defer conn.Close()
		defer dieWithUs(b.cmd)()
		err := b.cmd.Start()
		started <- err
		if err == nil {
			_ = b.cmd.Wait() // the status is read from ProcessState
			close(b.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	go b.listen(conn)
	return b, nil
}

// dieWithUs has the kernel kill a command that is still to be started when this process dies. What
// counts is the death of the thread that starts it, see PR_SET_PDEATHSIG(2const), so the calling
// goroutine keeps its thread to itself until it calls the returned function, after the command's end.
func dieWithUs(cmd *exec.Cmd) (done func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// command puts itself into the host's cgroups and network and becomes systemd-nspawn. Nspawn's own
// --network-namespace-path mounts /sys before it enters the namespace, and so shows the interfaces
// of the outer machine.
func (h *Host) command(notify string) *exec.Cmd {
	script := ""
	for i := range h.groups {
		script += fmt.Sprintf(`echo $$ > "$%d/cgroup.procs" && `, i+1)
	}
	script += fmt.Sprintf(`shift %d && exec nsenter --net=/proc/%d/fd/%d "$@"`, len(h.groups), os.Getpid(), h.netns.Fd())
	args := append([]string{"-c", script, "sh"}, h.groups...)
	args = append(args, "systemd-nspawn", "--boot", "--quiet", "--directory", filepath.Join(h.dir, "root"),
		"--machine", h.machine, "--hostname", h.opts.Name, "--settings=no", "--register=no", "--keep-unit",
		"--console=pipe", "--notify-ready=yes", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
		"--capability=CAP_NET_ADMIN", "--system-call-filter=bpf") // the second for IPAddressDeny=
	args = append(args, h.opts.Nspawn...)
	cmd := exec.Command("/bin/sh", args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "NOTIFY_SOCKET=" + notify,
		// Hosts of today have cgroup v2 alone, also where the outer machine mixes both.
		"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1"}
	return cmd
}

// listen follows what systemd-nspawn reports by sd_notify(3).
func (b *boot) listen(conn *net.UnixConn) {
	buf := make([]byte, 4096)
	var once sync.Once
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		for line := range strings.SplitSeq(string(buf[:n]), "\n") {
			if pid, ok := strings.CutPrefix(line, "X_NSPAWN_LEADER_PID="); ok {
				b.leader, _ = strconv.Atoi(pid)
			}
			if line == "READY=1" {
				once.Do(func() { close(b.up) })
			}
		}
	}
}

// ready waits for the default target; a host that does not reach it is killed.
func (b *boot) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	select {
	case <-b.up:
		return nil
	case <-b.exited:
		return fmt.Errorf("systemd-nspawn exited with %d before the host was up: %s", b.code(), b.console())
	case <-ctx.Done():
		err := fmt.Errorf("host is not up: %w: %s", ctx.Err(), b.console())
		b.kill()
		return err
	}
}

func (b *boot) running() bool {
	if b == nil {
		return false
	}
	select {
	case <-b.exited:
		return false
	default:
		return true
	}
}

// isUp reports whether the default target was reached and the host still runs.
func (b *boot) isUp() bool {
	if !b.running() {
		return false
	}
	select {
	case <-b.up:
		return true
	default:
		return false
	}
}

// shutdown asks systemd for an orderly end and waits for it.
func (b *boot) shutdown(ctx context.Context, how syscall.Signal) error {
	if !b.isUp() {
		return errors.New("it is not up")
	}
	if err := syscall.Kill(b.leader, how); err != nil {
		return fmt.Errorf("signal systemd: %w", err)
	}
	select {
	case <-b.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for systemd-nspawn: %w: %s", ctx.Err(), b.console())
	}
}

// kill ends the host at once. The death of its first process ends all others of its pid namespace;
// before that process is known, the death of systemd-nspawn does.
func (b *boot) kill() {
	if !b.running() {
		return
	}
	if b.isUp() {
		_ = syscall.Kill(b.leader, syscall.SIGKILL) // may be gone already
	} else {
		_ = b.cmd.Process.Kill()
	}
	<-b.exited
}

// code is the exit status of systemd-nspawn, or -1.
func (b *boot) code() int {
	if b.running() || b.cmd.ProcessState == nil {
		return -1
	}
	return b.cmd.ProcessState.ExitCode()
}

// console is the end of what the host said on its console.
func (b *boot) console() string {
	log, err := os.ReadFile(b.log)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(log), 10)
}
