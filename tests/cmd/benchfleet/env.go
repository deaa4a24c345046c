// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/auditlog"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// settings are the shipped ones, but that the ControllerConfig is mirrored: what it drops would stay for an hour
// else, and the CA that verifies the API server, which is not rotated here, for ever.
const settings = `apiVersion: config.node-cert-agent.io/v1alpha1
trust: {holdRemovals: 0s, source: ""}
`

// env is a control plane with what is shipped, the controller, and what the fleet is to follow.
type env struct {
	options    options
	n          int
	table      *figures.Table
	bin        string // with the binaries
	dir        string // of ours, in memory if there is room
	plane      *controlplane.Plane
	admin      *http.Client
	asked      auditlog.Log
	controller *controller
	store      controllerconfig.Store
	content    *controllerconfig.Content
	files      board                   // which agents have written
	reports    board                   // whose state object was written
	want       atomic.Pointer[string]  // the digest of what the kubelet's bundle is to have
	bare       []figures.Samples       // the rounds of the baseline
	ours       atomic.Int64            // connections of the administrator that failed
	processes  []*process              // that run the fleet
	fail       context.CancelCauseFunc // ends the measurement
}

// newEnv brings up all but the fleet.
func newEnv(ctx context.Context, p options, n int, bin string, t *figures.Table) (e *env, err error) {
	e = &env{options: p, n: n, bin: bin, table: t, content: controllerconfig.NewContent(21)}
	e.expect(e.content.Spec.KubeAPIServerServingCAData)
	e.content.Spec.InternalRegistryPullSecret = nil // it is off by default
	defer func() {
		if err != nil {
			err = errors.Join(err, e.stop())
		}
	}()
	if e.dir, err = os.MkdirTemp(inMemory(), "benchfleet-"); err != nil {
		return e, err
	}
	log, audited, err := auditlog.New(e.dir)
	if err != nil {
		return e, err
	}
	e.asked = log
	e.plane, err = controlplane.Start(ctx, controlplane.Options{Keys: testpki.RSA, APIServerArgs: audited,
		StartLimit: p.limit, Progress: os.Stderr})
	if err != nil {
		return e, err
	}
	e.admin = e.plane.AdminClient()
	e.countOurs()
	for _, install := range []func(context.Context) error{e.plane.InstallShipped, e.plane.InstallPublisher} {
		if err := install(ctx); err != nil {
			return e, err
		}
	}
	e.store = controllerconfig.Store{API: controllerconfig.Small, URL: e.plane.URL(), Client: e.admin}
	if _, err := e.store.Create(ctx, e.content.Spec); err != nil {
		return e, err
	}
	return e, e.startController(ctx, filepath.Join(bin, "node-cert-controller"))
}

// inMemory is a directory of a file system in memory, or empty: the figures are about the cluster and not about
// the disk, and 5000 nodes have 125 000 files.
func inMemory() string {
	const shared = "/dev/shm"
	var fs unix.Statfs_t
	if unix.Statfs(shared, &fs) == nil && fs.Type == unix.TMPFS_MAGIC {
		return shared
	}
	return ""
}

// makeNodes makes Nodes, which are the inventory of the approver.
func (e *env) makeNodes(ctx context.Context, names ...string) error {
	return each(len(names), func(i int) error {
		body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Node",
			"metadata": map[string]any{"name": names[i]}})
		if err != nil {
			return err
		}
		_, err = e.ask(ctx, e.admin, http.MethodPost, nodesPath, asJSON, body)
		return err
	})
}

func (e *env) stop() error {
	e.endAgents()
	e.controller.stop()
	var err error
	if e.plane != nil {
		err = e.plane.Stop()
	}
	if e.dir != "" {
		err = errors.Join(err, os.RemoveAll(e.dir))
	}
	return err
}
