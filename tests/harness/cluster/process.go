// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
)

// Process is a child that the kernel ends if we die, and that a Ctrl-C at the terminal does not reach.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Launch starts a command as such a child.
func Launch(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &Process{cmd, make(chan struct{})}
	started := make(chan error)
	go func() {
		// PR_SET_PDEATHSIG(2const) is about the thread that forked, so that one has to stay.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ends is told by what it did
		}
		close(p.ended)
	}()
	return p, <-started
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.ended }

// Stop asks the process to end and waits for it. It may have ended by itself. Nil is no process.
func (p *Process) Stop() {
	if p == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
}

// StartApprover runs a binary of node-cert-controller on this machine, with the rights of its
// ServiceAccount, for a control plane that has what InstallShipped installs. Its log is
// approver.log in the plane's folder.
func StartApprover(p *controlplane.Plane, binary string, args ...string) (*Process, error) {
	const account = "system:serviceaccount:node-cert-agent:node-cert-controller"
	config, err := p.Kubeconfig(p.URL(), account, "system:serviceaccounts", "system:serviceaccounts:node-cert-agent")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(p.Dir(), "approver.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(binary, append([]string{"--kubeconfig", config}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	return Launch(cmd)
}

// Build builds the command that the file to is named after, such as node-cert-agent, statically, as a
// package would.
func Build(ctx context.Context, to string) error {
	repo, err := repository(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	name := filepath.Base(to)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, "./cmd/"+name)
	cmd.Dir, cmd.Env = repo, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %v\n%s", name, err, out)
	}
	return nil
}
