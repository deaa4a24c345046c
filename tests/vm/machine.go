// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// The words of the guest's side; whatever else it says is the output of a command.
const (
	ready = "READY"
	end   = "END "
)

// shell is the guest's side: each line that comes in is a script, base64.
var shell = map[string]host.File{
	"/etc/systemd/system/commands.service": {Data: []byte(`[Unit]
Description=Commands of the test
After=multi-user.target

[Service]
Type=idle
ExecStart=/bin/sh /etc/commands
StandardInput=tty
StandardOutput=tty
TTYPath=/dev/ttyS1
Environment=HOME=/root
`)},
	"/etc/commands": {Data: []byte(`stty raw -echo
echo ` + ready + `
while read -r line; do
	echo "$line" | base64 -d >/run/command
	sh /run/command </dev/null 2>&1
	echo "` + end + `$?"
done
`)},
	"/etc/systemd/system/default.target": {Data: []byte(`[Unit]
Description=The machine and its commands
Requires=multi-user.target commands.service
After=multi-user.target
AllowIsolate=yes
`)},
	"/etc/machine-id": {Data: []byte("0123456789abcdef0123456789abcdef\n")},
	"/etc/hostname":   {Data: []byte("node\n")},
}

// machine is one run of a virtual machine, from power on to power off.
type machine struct {
	cmd     *exec.Cmd
	in      io.Writer
	lines   chan string // what comes out of the second serial port; closed at the end
	console string      // the file that the first one goes to
	exited  chan struct{}
}

// start turns a machine on; parameters go to its kernel.
func (i image) start(parameters string) (*machine, error) {
	m := &machine{lines: make(chan string), console: i.disk + ".console", exited: make(chan struct{})}
	m.cmd = exec.Command("qemu-system-x86_64", "-no-user-config", "-nodefaults", "-accel", "tcg", "-m", "1024", "-smp",
		"2",
		"-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot", "-serial", "file:"+m.console, "-serial",
		"stdio",
		"-device", "virtio-rng-pci", "-kernel", i.kernel, "-initrd", i.initrd,
		"-append", "root=/dev/vda rw console=ttyS0 "+parameters,
		"-drive", "file="+i.disk+",format=raw,if=virtio,cache=none")
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	m.in = in
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// What counts for Pdeathsig is the thread that starts the program, see PR_SET_PDEATHSIG(2const).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			m.follow(out)
			_ = m.cmd.Wait() // killed, or off
			close(m.exited)
		}
	}()
	return m, <-started
}

// follow passes on the lines of the guest until it is off. Half a line was not said.
func (m *machine) follow(out io.Reader) {
	defer close(m.lines)
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		m.lines <- strings.TrimRight(line, "\r\n")
	}
}

// line is the next line of the guest.
func (m *machine) line(ctx context.Context) (string, error) {
	select {
	case line, open := <-m.lines:
		if !open {
			return "", fmt.Errorf("the machine is off; its console ends with\n%s", m.said())
		}
		return line, nil
	case <-ctx.Done():
		return "", fmt.Errorf("%w; the machine's console ends with\n%s", ctx.Err(), m.said())
	}
}

// up waits until the guest takes commands.
func (m *machine) up(ctx context.Context) error {
	for {
		if line, err := m.line(ctx); err != nil || line == ready {
			return err
		}
	}
}

// send has the guest begin with a script.
func (m *machine) send(script string) error {
	_, err := fmt.Fprintln(m.in, base64.StdEncoding.EncodeToString([]byte(script)))
	return err
}

// run has the guest run a script of its shell as root, and returns what it said, on both outputs, and its status.
func (m *machine) run(ctx context.Context, script string) (said string, status int, err error) {
	if err := m.send(script); err != nil {
		return "", 0, err
	}
	var b strings.Builder
	for {
		line, err := m.line(ctx)
		if err != nil {
			return b.String(), 0, fmt.Errorf("%s: %w", script, err)
		}
		// Output that does not end with a line's end stands before the word.
		if before, after, found := strings.Cut(line, end); found {
			if status, err = strconv.Atoi(after); err == nil {
				return b.String() + before, status, nil
			}
		}
		b.WriteString(line + "\n")
	}
}

// cut cuts the power, and returns what had left the guest by then and was not read.
func (m *machine) cut() (rest []string) {
	_ = m.cmd.Process.Kill() // it may be off
	for line := range m.lines {
		rest = append(rest, line)
	}
	<-m.exited
	return rest
}

// off waits until the guest turned itself off.
func (m *machine) off(ctx context.Context) error {
	for {
		if _, err := m.line(ctx); err != nil {
			if ctx.Err() != nil {
				return err
			}
			break
		}
	}
	<-m.exited
	if code := m.cmd.ProcessState.ExitCode(); code != 0 {
		return errors.New("qemu ended with " + m.cmd.ProcessState.String() + "; the console ends with\n" + m.said())
	}
	return nil
}

// said is the end of the console.
func (m *machine) said() string {
	b, err := os.ReadFile(m.console)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
