// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ExitError is a command on the host that ended with another status than 0.
type ExitError struct {
	Command []string
	Code    int // -1 if a signal ended it
	Stderr  string
}

// Error names the command, its status and what it said.
func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: exit status %d: %s", strings.Join(e.Command, " "), e.Code, strings.TrimSpace(e.Stderr))
}

// Run runs a command on the host as root and returns its standard output, also when it fails. If it
// ran and failed, the error wraps an ExitError. The command sees the host's namespaces and a bare
// environment; it belongs to no unit, and dies with ctx.
func (h *Host) Run(ctx context.Context, command ...string) (string, error) {
	pid, err := h.leader()
	if err != nil {
		return "", err
	}
	args := append([]string{"--target", strconv.Itoa(pid), "--all", "--",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}, command...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	defer dieWithUs(cmd)()
	cmd.Cancel = func() error { return killEntered(cmd.Process.Pid) }
	cmd.WaitDelay = time.Second
	if err = cmd.Run(); err == nil {
		return out.String(), nil
	}
	if ctx.Err() != nil {
		return out.String(), fmt.Errorf("host %s: run %s: %w", h.opts.Name, command[0], ctx.Err())
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = &ExitError{Command: command, Code: exit.ExitCode(), Stderr: errs.String()}
	}
	return out.String(), fmt.Errorf("host %s: %w", h.opts.Name, err)
}

// killEntered kills what nsenter runs, and so ends nsenter. Were nsenter itself killed, its child in
// the host's pid namespace would become a child of the outer machine's init, and until that one
// reaps it, it would be in the way of the host's shutdown.
func killEntered(nsenter int) error {
	if err := syscall.Kill(nsenter, syscall.SIGSTOP); err != nil {
		return err
	}
	children := descendants(nsenter)
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL) // may have ended by itself
	}
	if len(children) == 0 { // not forked yet
		return syscall.Kill(nsenter, syscall.SIGKILL)
	}
	return syscall.Kill(nsenter, syscall.SIGCONT)
}

func descendants(pid int) (all []int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	for f := range strings.FieldsSeq(string(b)) {
		if child, err := strconv.Atoi(f); err == nil {
			_ = syscall.Kill(child, syscall.SIGSTOP) // or it could have one more when these are known
			all = append(append(all, child), descendants(child)...)
		}
	}
	return all
}

// RunAs is Run as another user of the host, with its primary and supplementary groups and without
// capabilities.
func (h *Host) RunAs(ctx context.Context, user string, command ...string) (string, error) {
	script := `u=$1; shift; exec setpriv --reuid "$u" --regid "$(id -g "$u")" --init-groups --inh-caps=-all -- "$@"`
	return h.Run(ctx, append([]string{"sh", "-c", script, "sh", user}, command...)...)
}

// Entry is one entry of the journal: its fields by name. Fields that are not text are left out.
type Entry map[string]string

// Journal returns what journalctl(1) prints for args on the journal of the host, running or not, of
// all its boots.
func (h *Host) Journal(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "journalctl", append([]string{"--directory", h.journal(), "--no-pager"}, args...)...)
}

// WaitJournal returns the first entry that matches args, as of journalctl(1), and that accept, if
// not nil, accepts. It looks at the entries there are, then at those that come, over reboots too,
// until ctx ends. Accept sees each entry once.
func (h *Host) WaitJournal(ctx context.Context, args []string, accept func(Entry) bool) (Entry, error) {
	f := follower{dir: h.journal(), args: args, accept: accept}
	for {
		// A following journalctl goes deaf when a later boot appends to the file it reads (seen with
		// 252): a new one takes over after every boot.
		boot, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(h.nextBoot(), cancel)
		e, err := f.follow(boot)
		stop()
		cancel()
		if err == nil {
			return e, nil
		}
		if ctx.Err() == nil && errors.Is(err, context.Canceled) {
			continue
		}
		return nil, fmt.Errorf("host %s: wait for the journal to show %s: %w", h.opts.Name, strings.Join(args, " "), err)
	}
}

// follower reads a journal from where it left off.
type follower struct {
	dir    string
	args   []string
	accept func(Entry) bool
	cursor string
}

// follow returns an accepted entry, or the error of ctx or of journalctl.
func (f *follower) follow(ctx context.Context) (Entry, error) {
	args := []string{"--directory", f.dir, "--follow", "--no-tail", "--all", "--output=json"}
	if f.cursor != "" {
		args = append(args, "--after-cursor", f.cursor)
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "journalctl", append(args, f.args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	defer dieWithUs(cmd)()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	e, err := f.read(json.NewDecoder(stdout))
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	cancel()
	_ = cmd.Wait() // killed by us, or its end is in err
	if errs.Len() > 0 && err != nil && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %s", err, lastLines(errs.String(), 3))
	}
	return e, err
}

func (f *follower) read(d *json.Decoder) (Entry, error) {
	for {
		var fields map[string]any
		if err := d.Decode(&fields); err != nil {
			return nil, err
		}
		e := Entry{}
		for k, v := range fields {
			if s, ok := v.(string); ok {
				e[k] = s
			}
		}
		f.cursor = e["__CURSOR"]
		if f.accept == nil || f.accept(e) {
			return e, nil
		}
	}
}

func (h *Host) journal() string { return filepath.Join(h.dir, "root/var/log/journal") }
