// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/host"
	"github.com/node-cert-agent/node-cert-agent/tests/testpki"
)

// patience bounds every wait.
const patience = 30 * time.Second

const (
	// floorRoot is where the floor keeps its files: on the same overlay as /etc, and in no directory
	// whose changes the agent is told of.
	floorRoot   = "/srv/floor"
	floorPKI    = "/etc/floor"
	floorBinary = "/usr/local/bin/floor"
	floorName   = "floor"
)

// config is the usual configuration for OpenShift's kind: the shipped rows and an empty allowlist.
const config = `apiVersion: config.node-cert-agent.io/v1alpha1
object: {group: machineconfiguration.openshift.io, version: v1}
follow: {retrySpread: 200ms, retryMax: 1s}
`

// bed is the product on a host, the floor beside it, and the object of each.
type bed struct {
	*cluster.Cluster
	dir   string // of ours, on the outer machine
	arms  []*arm // floor and agent
	sight *sight // of both's files
}

// arm is one of the two that are compared.
type arm struct {
	name    string
	root    string // above its files, on the outer machine
	store   controllerconfig.Store
	content *content
}

// want is where this arm shall have which files.
func (a *arm) want(s controllerconfig.Spec) map[string][]byte {
	f := map[string][]byte{}
	for place, data := range files(s) {
		f[filepath.Join(a.root, place)] = data
	}
	return f
}

// newBed brings everything up; both arms have written all their files.
func newBed(ctx context.Context) (b *bed, err error) {
	b = &bed{}
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	if b.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return b, err
	}
	floor, err := buildFloor(ctx, b.dir)
	if err != nil {
		return b, err
	}
	b.Cluster, err = cluster.Start(ctx, cluster.Options{API: controllerconfig.OpenShift, Config: config, Progress: os.Stderr,
		Plane: controlplane.Options{Keys: testpki.RSA}, Host: host.Options{Files: map[string]host.File{
			floorBinary: {Data: floor, Mode: 0o755},
			"/etc/pki/ca-trust/source/anchors/README": {},
			"/etc/systemd/system/" + floorUnit: {Data: []byte("[Service]\nType=exec\nExecStart=" +
				strings.Join(b.floorCommand(floorBinary, cluster.Server, floorPKI, floorRoot), " ") + "\n")},
		}}})
	if err != nil {
		return b, err
	}
	if err := b.floorIdentity(func(name string, data []byte) error {
		return b.Host.PutFile(filepath.Join(floorPKI, name), host.File{Data: data})
	}); err != nil {
		return b, err
	}
	return b, b.begin(ctx)
}

// buildFloor builds the floor as the agent is built, and returns it.
func buildFloor(ctx context.Context, dir string) ([]byte, error) {
	to := filepath.Join(dir, "floor")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, "./tests/bench/floor")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the floor: %v\n%s", err, out)
	}
	return os.ReadFile(to)
}

func (b *bed) floorCommand(binary, server, pki, root string) []string {
	return []string{binary, "-server", server, "-collection", controllerconfig.OpenShift.Path(), "-name", floorName, "-pki", pki, "-root", root}
}

// floorIdentity gives the floor a client certificate. The agents' group may not read its object.
func (b *bed) floorIdentity(put func(name string, data []byte) error) error {
	ca := b.Plane.CA()
	pair := ca.Client("floor", "system:masters")
	for name, data := range map[string][]byte{"ca.crt": ca.PEM(), "client.crt": pair.Cert, "client.key": pair.Key} {
		if err := put(name, data); err != nil {
			return err
		}
	}
	return nil
}

// begin creates both objects and starts both arms.
func (b *bed) begin(ctx context.Context) error {
	b.arms = []*arm{{name: "floor", root: b.Host.Path(floorRoot), store: b.Store}, {name: "agent", root: b.Host.Path("/"), store: b.Store}}
	b.arms[0].store.Name = floorName
	for _, a := range b.arms {
		a.content = newContent()
		if _, err := a.store.Create(ctx, a.content.spec); err != nil {
			return err
		}
	}
	if _, err := b.Host.Run(ctx, "systemctl", "start", agentUnit, floorUnit); err != nil {
		return err
	}
	var dirs []string
	for _, a := range b.arms {
		want := a.want(a.content.spec)
		if err := eventually(ctx, "the first files of the "+a.name, func() bool { return hold(want) }); err != nil {
			return err
		}
		for path := range want {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	var err error
	b.sight, err = newSight(dirs...)
	return err
}

func hold(want map[string][]byte) bool {
	for path, data := range want {
		if got, err := os.ReadFile(path); err != nil || string(got) != string(data) {
			return false
		}
	}
	return true
}

// eventually polls for what announces itself by no event.
func eventually(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s did not come about: %w", what, ctx.Err())
		}
	}
	return nil
}

// pause lets time pass in which nothing is measured or, in part, nothing shall happen.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// processed waits until the agent has finished with a version of its object.
func (b *bed) processed(ctx context.Context, version string) error {
	return eventually(ctx, "version "+version, func() bool {
		data, _ := os.ReadFile(b.Host.Path("/run/node-cert-agent/status.json"))
		var s report.Status
		return json.Unmarshal(data, &s) == nil && s.Object.ResourceVersion == version
	})
}

func (b *bed) stop() error {
	var err error
	if b.Cluster != nil {
		err = b.Cluster.Stop()
	}
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
	return err
}
