// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// controller is the process of node-cert-controller, with the rights of its ServiceAccount. It ends when it loses
// its Lease, as it does while the API server is away or too slow, and is started again as systemd would.
type controller struct {
	binary, kubeconfig, log string

	mu      sync.Mutex
	cmd     *exec.Cmd
	process *cluster.Process
	starts  int
	stopped bool
}

// startController returns once the controller leads.
func (e *env) startController(ctx context.Context, binary string) error {
	const account = "system:serviceaccount:node-cert-agent:node-cert-controller"
	p := e.plane
	config, err := p.Kubeconfig(p.URL(), account, "system:serviceaccounts", "system:serviceaccounts:node-cert-agent")
	if err != nil {
		return err
	}
	e.controller = &controller{binary: binary, kubeconfig: config, log: filepath.Join(p.Dir(), "controller.log")}
	if err := e.controller.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = wait.Success(ctx, func() error {
		_, err := p.Kubectl(ctx, "wait", "-n", "node-cert-agent", "lease/node-cert-controller",
			"--for=jsonpath={.spec.holderIdentity}", "--timeout=1s")
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for the controller to lead: %w", err)
	}
	return nil
}

// start starts the process, and again when it has ended, unless it was stopped.
func (c *controller) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.binary, "--kubeconfig", c.kubeconfig, "--controllers=approver,publisher")
	cmd.Stdout, cmd.Stderr = log, log
	process, err := cluster.Launch(cmd)
	if err != nil {
		return err
	}
	c.cmd, c.process = cmd, process
	c.starts++
	go func() {
		<-process.Done()
		<-time.After(time.Second) // as RestartSec= does
		if err := c.start(); err != nil {
			fmt.Fprintln(os.Stderr, "  starting the controller again:", err)
		}
	}()
	return nil
}

// stop ends the process, if there is one.
func (c *controller) stop() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.stopped = true
	process := c.process
	c.mu.Unlock()
	process.Stop()
}

// held is what the controller holds now.
func held(_ context.Context, e *env) error {
	c := e.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	resident, peak := memory(c.cmd.Process.Pid)
	e.table.Note("controller, resident now", "%.1f MiB", resident)
	e.table.Judge("controller, peak", peak, 150, "MiB")
	if c.starts > 1 {
		e.table.Note("  controller, starts; the peak is of the last", "%d", c.starts)
	}
	return nil
}
