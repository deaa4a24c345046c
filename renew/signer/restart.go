// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// staticPod is the origin of a process that a kubelet starts again when it has ended.
const staticPod = "static pod"

// restart ends the processes that started before their pair was changed, and read it only then. The kubelet starts
// them again; there can be no second time for the same files.
func (h *handler) restart(who frame.Peer, q Change) (*pair.Facts, error) {
	f, p, err := h.checked(who, q)
	if err != nil {
		return nil, err
	}
	if who.UID != 0 && (p.Mode != pair.ModeRenew || !p.Restart) {
		return nil, refuse("only root may end a process, as renewal.mode and renewal.restart say")
	}
	if h.Replacer.Waiting().Pair.ID == FilesOf(f).ID {
		return nil, refuse("%s waits for proof", f.Name)
	}
	ended := 0
	for _, c := range f.Users {
		if !f.AtStart || !c.Started.Before(f.Changed) {
			continue
		}
		if c.Origin != staticPod {
			return nil, refuse("%s is no static pod: systemctl try-restart %s", c.Program, c.Origin)
		}
		if err := h.terminate(who, f, c); err != nil {
			return nil, err
		}
		ended++
	}
	if ended == 0 {
		return nil, refuse("no process uses %s as it was before", f.Name)
	}
	return &f, nil
}

// terminate sends SIGTERM to a process. What is opened first is seen to be that process after, so that a number that
// was given to another one meanwhile does no harm. When a process started is known by the clock and the time since
// boot, and so not to the tick.
func (h *handler) terminate(who frame.Peer, f pair.Facts, c pair.Component) error {
	process, err := os.FindProcess(c.PID) // opens a pidfd
	if err != nil {
		return err
	}
	defer func() { _ = process.Release() }()
	now, err := h.Host.Find(f.Name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(now.Users, func(u pair.Component) bool {
		return u.PID == c.PID && u.Program == c.Program && u.Started.Sub(c.Started).Abs() < time.Second
	}) {
		return &Error{Failed, fmt.Sprintf("%s (pid %d) has ended by itself", c.Program, c.PID)}
	}
	fmt.Fprintf(h.log, "<5>signer ends: program=%q process=%d pair=%q uid=%d pid=%d\n", c.Program, c.PID, f.Name, who.UID,
		who.PID)
	return h.Terminate(process)
}

// Terminate sends SIGTERM.
func Terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
