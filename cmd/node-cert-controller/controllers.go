// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"go.uber.org/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
	"github.com/node-cert-agent/node-cert-agent/cluster/clusterapi"
	"github.com/node-cert-agent/node-cert-agent/cluster/fleet"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher"
)

// controllers are what --controllers may name, and how each joins the manager.
var controllers = map[string]func(manager.Manager, settings, *zap.Logger) error{
	"approver":    addApprover,
	"cluster-api": addClusterAPI,
	"publisher":   addPublisher,
}

// controllerConfig is the object that the nodes watch. The rights of the publisher name it, too.
const controllerConfig = "machine-config-controller"

func addPublisher(mgr manager.Manager, _ settings, _ *zap.Logger) error {
	nodes, err := fleet.Add(mgr)
	if err != nil {
		return err
	}
	return publisher.Add(mgr, publisher.Options{ControllerConfig: controllerConfig, Fleet: nodes,
		Changed: nodes.Changed()})
}

func addClusterAPI(mgr manager.Manager, s settings, log *zap.Logger) error {
	o := clusterapi.Usual
	o.Renew.Before, o.Log = s.etcdClient, log.Named("cluster-api")
	return clusterapi.Add(mgr, o)
}

func addApprover(mgr manager.Manager, s settings, log *zap.Logger) error {
	return approver.Add(mgr, approver.Options{
		Policy:   verdict.Policy{MaxLifetime: s.lifetime, StaleAfter: s.stale},
		Listed:   func(node string) (bool, error) { return listed(s.nodes, node) },
		Machines: s.machines,
		Log:      log.Named("approver"),
	})
}

// listed looks a node up in a file of names; blank lines and what follows # do not count.
func listed(file, node string) (bool, error) {
	if file == "" {
		return false, nil
	}
	f, err := os.Open(file) //nolint:gosec // a flag names it
	if err != nil {
		return false, fmt.Errorf("reading the list of nodes: %v", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(name) == node {
			return true, nil
		}
	}
	return false, lines.Err()
}
