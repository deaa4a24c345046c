// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// errPortTaken says that a server ended because somebody else listens on its port.
var errPortTaken = errors.New("a port that was free has been taken")

// server is one running process of the control plane.
type server struct {
	name, log string
	process   *os.Process
	done      chan struct{} // closed when the process has ended
	ended     error         // how it ended; to be read after done
}

// launch starts the named server with a log in dir, to which a second run appends.
func launch(b Binaries, name, dir string, args []string) (*server, error) {
	s := &server{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(b.path(name), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	// The server dies with us, and a Ctrl-C at the terminal is ours to act on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go s.own(cmd, started)
	return s, <-started
}

// own starts the process and waits for its end on one thread, kept for that: the parent in the
// sense of PR_SET_PDEATHSIG(2const) is the thread that forked, and Go ends a thread when a goroutine
// locked to it does, as one that has entered a container's network namespace must.
func (s *server) own(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	s.process = cmd.Process
	started <- err
	if err == nil {
		s.ended = cmd.Wait()
	}
	close(s.done)
}

// running is false for a server that was never started, too.
func (s *server) running() bool {
	if s == nil {
		return false
	}
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// stop sends the signal and waits until the process has ended. If ctx ends first, the process is
// still there.
func (s *server) stop(ctx context.Context, sig os.Signal) error {
	if err := s.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %v to %s: %v", sig, s.name, err)
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s has not ended after %v: %v", s.name, sig, context.Cause(ctx))
	}
}

// freeze returns when every thread has stopped, which kill(2) alone does not wait for.
func (s *server) freeze() error {
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stopping %s: %v", s.name, err)
	}
	for {
		err := unix.Waitid(unix.P_PID, s.process.Pid, nil, unix.WSTOPPED, nil)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for %s to stop: %v", s.name, err)
		}
	}
}

// ready asks url until it answers 200, and gives up when the process ends or ctx does.
func (s *server) ready(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := wait.Success(ctx, func() error { return get200(ctx, client, url) })
	if !s.running() {
		tail := s.tail()
		if strings.Contains(tail, syscall.EADDRINUSE.Error()) {
			return fmt.Errorf("%s: %w", s.name, errPortTaken)
		}
		return fmt.Errorf("%s ended before it was ready (%v); its log ends with\n%s", s.name, s.ended, tail)
	}
	if err != nil {
		return fmt.Errorf("%s is not ready: %v; its log ends with\n%s", s.name, err, s.tail())
	}
	return nil
}

// tail is the end of the server's log.
func (s *server) tail() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

func get200(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}
