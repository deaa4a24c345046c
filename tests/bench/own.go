// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/host"
)

const (
	nodeName = "node" // the host's
	// inventory is the approver's list of nodes, in a folder of ours.
	inventory = "nodes.txt"
	dropIn    = "/etc/systemd/system/node-cert-agent.service.d/kubeconfig.conf"
)

// own is what an identity of its own costs the agent in memory, beside a kubeconfig that somebody else
// maintains. Both are measured here, one after the other.
func own(ctx context.Context, b *bed, _ plan, t *table) error {
	given, err := b.anonymous(ctx)
	if err != nil {
		return err
	}
	if err := b.identify(ctx); err != nil {
		return err
	}
	got, err := b.anonymous(ctx)
	if err != nil {
		return err
	}
	at := fmt.Sprintf("after %d changes: agent, ", changesBefore)
	t.note(at+"kubeconfig, resident / anonymous", "%.2f / %.2f MiB", given.resident, given.anonymous)
	t.note(at+"own identity, resident / anonymous", "%.2f / %.2f MiB", got.resident, got.anonymous)
	t.judge("  own identity - kubeconfig, anonymous", got.anonymous-given.anonymous, 2, "MiB")
	return nil
}

// anonymous is what an agent holds that started before 60 changes.
func (b *bed) anonymous(ctx context.Context) (use, error) {
	if _, err := b.Host.Run(ctx, "systemctl", "restart", writerUnit, agentUnit); err != nil {
		return use{}, err
	}
	if _, err := b.alternate(ctx, changesBefore, shortPause, (*content).rotate); err != nil {
		return use{}, err
	}
	pause(ctx, settling)
	return b.use(ctx, agentUnit)
}

// identify takes the agent's kubeconfig away and gives it a token, and an approver to the cluster. It
// returns when the agent follows its object by an identity of its own.
func (b *bed) identify(ctx context.Context) error {
	if b.approver != nil {
		return nil
	}
	if err := b.approve(ctx); err != nil {
		return err
	}
	if err := b.Host.PutFile(dropIn, host.File{Data: []byte("[Service]\nRestartSec=100ms\n")}); err != nil {
		return err
	}
	if _, err := b.Host.Run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	s := newTokens(b)
	if err := s.prepare(ctx, nodeName, "bench0"); err != nil {
		return err
	}
	_, err := s.start(ctx)
	return err
}

// approve starts the approver. It finds the nodes it may admit in a list.
func (b *bed) approve(ctx context.Context) error {
	if err := b.Plane.InstallShipped(ctx); err != nil {
		return err
	}
	binary := filepath.Join(b.dir, "node-cert-controller")
	if err := cluster.Build(ctx, binary); err != nil {
		return err
	}
	if err := b.admit(nodeName); err != nil {
		return err
	}
	var err error
	if b.approver, err = cluster.StartApprover(b.Plane, binary, "--nodes", filepath.Join(b.dir, inventory)); err != nil {
		return err
	}
	return eventually(ctx, "an approver that leads", func() bool {
		log, err := os.ReadFile(filepath.Join(b.Plane.Dir(), "approver.log"))
		return err == nil && strings.Contains(string(log), `"leading"`)
	})
}

// admit adds names to the list.
func (b *bed) admit(names ...string) error {
	f, err := os.OpenFile(filepath.Join(b.dir, inventory), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(names, "\n") + "\n")
	if failure := f.Close(); err == nil {
		err = failure
	}
	return err
}
