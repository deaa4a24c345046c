// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

const (
	nodeName = "node" // the host's
	// inventory is the approver's list of nodes, in a folder of ours.
	inventory = "nodes.txt"
	dropIn    = "/etc/systemd/system/node-cert-agent.service.d/kubeconfig.conf"
)

// own is what an identity of its own costs the agent in memory, beside a kubeconfig that somebody else
// maintains. Both are measured here, one after the other.
func own(ctx context.Context, e *env, _ plan, t *figures.Table) error {
	given, err := e.anonymous(ctx)
	if err != nil {
		return err
	}
	if err := e.identify(ctx); err != nil {
		return err
	}
	got, err := e.anonymous(ctx)
	if err != nil {
		return err
	}
	at := fmt.Sprintf("after %d changes: agent, ", changesBefore)
	t.Note(at+"kubeconfig, resident / anonymous", "%.2f / %.2f MiB", given.resident, given.anonymous)
	t.Note(at+"own identity, resident / anonymous", "%.2f / %.2f MiB", got.resident, got.anonymous)
	t.Judge("  own identity - kubeconfig, anonymous", got.anonymous-given.anonymous, 2, "MiB")
	return nil
}

// anonymous is what an agent holds that started before 60 changes.
func (e *env) anonymous(ctx context.Context) (use, error) {
	if _, err := e.Host.Run(ctx, "systemctl", "restart", writerUnit, agentUnit); err != nil {
		return use{}, err
	}
	if _, err := e.alternate(ctx, changesBefore, shortPause, (*controllerconfig.Content).Rotate); err != nil {
		return use{}, err
	}
	pause(ctx, settling)
	return e.use(ctx, agentUnit)
}

// identify takes the agent's kubeconfig away and gives it a token, and an approver to the cluster. It
// returns when the agent follows its object by an identity of its own.
func (e *env) identify(ctx context.Context) error {
	if e.approver != nil {
		return nil
	}
	if err := e.approve(ctx); err != nil {
		return err
	}
	if err := e.Host.PutFile(dropIn, host.File{Data: []byte("[Service]\nRestartSec=100ms\n")}); err != nil {
		return err
	}
	if _, err := e.Host.Run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	s := newTokens(e)
	if err := s.prepare(ctx, nodeName, "bench0"); err != nil {
		return err
	}
	_, err := s.start(ctx)
	return err
}

// approve starts the approver. It finds the nodes it may admit in a list.
func (e *env) approve(ctx context.Context) error {
	if err := e.Plane.InstallShipped(ctx); err != nil {
		return err
	}
	binary := filepath.Join(e.dir, "node-cert-controller")
	if err := cluster.Build(ctx, binary); err != nil {
		return err
	}
	if err := e.admit(nodeName); err != nil {
		return err
	}
	var err error
	if e.approver, err = cluster.StartApprover(e.Plane, binary, "--nodes", filepath.Join(e.dir, inventory)); err != nil {
		return err
	}
	return wait.Until(ctx, "an approver that leads", func() bool {
		log, err := os.ReadFile(filepath.Join(e.Plane.Dir(), "approver.log"))
		return err == nil && strings.Contains(string(log), `"leading"`)
	})
}

// admit adds names to the list.
func (e *env) admit(names ...string) error {
	f, err := os.OpenFile(filepath.Join(e.dir, inventory), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(names, "\n") + "\n")
	if failure := f.Close(); err == nil {
		err = failure
	}
	return err
}
