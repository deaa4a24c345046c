// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/auditlog"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

const (
	// baselineRoot is where the baseline keeps its files: on the same overlay as /etc, and in no directory
	// whose changes the agent is told of.
	baselineRoot   = "/srv/baseline"
	baselinePKI    = "/etc/baseline"
	baselineBinary = "/usr/local/bin/baseline"
	baselineName   = "baseline"
)

// config is the usual configuration for OpenShift's kind: the shipped files and an empty allowlist. The
// object is mirrored as the baseline does it; by default what it drops would stay for an hour, and the CA
// that verifies the API server, which is not rotated here, for ever.
const config = `apiVersion: config.node-cert-agent.io/v1alpha1
controllerConfig: {group: machineconfiguration.openshift.io, version: v1}
trust: {holdRemovals: 0s, source: ""}
watch: {retryJitter: 200ms, retryMax: 1s}
`

// env is the product on a host, the baseline beside it, and the object of each.
type env struct {
	*cluster.Cluster
	dir      string           // of ours, on the outer machine
	asked    auditlog.Log     // of the API server
	arms     []*arm           // baseline and agent
	observer *observer        // of both's files
	approver *cluster.Process // once agents get identities of their own
}

// arm is one of the two that are compared.
type arm struct {
	name    string
	root    string // above its files, on the outer machine
	store   controllerconfig.Store
	content *controllerconfig.Content
}

// want is where this arm shall have which files.
func (a *arm) want(s controllerconfig.Spec) map[string][]byte {
	f := map[string][]byte{}
	for place, data := range controllerconfig.Files(s) {
		f[filepath.Join(a.root, place)] = data
	}
	return f
}

// newEnv brings everything up; both arms have written all their files. Further arguments are those of
// kube-controller-manager.
func newEnv(ctx context.Context, args ...string) (e *env, err error) {
	e = &env{}
	defer func() {
		if err != nil {
			e.stop()
		}
	}()
	if e.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return e, err
	}
	baseline, err := build(ctx, e.dir, "baseline")
	if err != nil {
		return e, err
	}
	reload, err := build(ctx, e.dir, "reload")
	if err != nil {
		return e, err
	}
	log, audited, err := auditlog.New(e.dir)
	if err != nil {
		return e, err
	}
	e.asked = log
	e.Cluster, err = cluster.Start(ctx, cluster.Options{API: controllerconfig.OpenShift, Config: config,
		Progress: os.Stderr, Kubelet: true,
		Plane: controlplane.Options{Keys: testpki.RSA, EtcdArgs: []string{largeStore}, APIServerArgs: audited,
			ControllerManagerArgs: args}, Host: host.Options{Files: map[string]host.File{
			baselineBinary: {Data: baseline, Mode: 0o755},
			"/etc/pki/ca-trust/source/anchors/README": {},
			"/etc/systemd/system/" + baselineUnit: {Data: []byte("[Service]\nType=exec\nExecStart=" +
				strings.Join(e.baselineCommand(baselineBinary, cluster.Server, baselinePKI, baselineRoot), " ") + "\n")},
			reloadUnit.path: {Data: []byte(reloadUnit.text)},
			reloadBinary:    {Data: reload, Mode: 0o755},
		}}})
	if err != nil {
		return e, err
	}
	if err := e.baselineIdentity(func(name string, data []byte) error {
		return e.Host.PutFile(filepath.Join(baselinePKI, name), host.File{Data: data})
	}); err != nil {
		return e, err
	}
	return e, e.begin(ctx)
}

// build builds one of the commands beside this one as the agent is built, and returns it.
func build(ctx context.Context, dir, name string) ([]byte, error) {
	to := filepath.Join(dir, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, "./tests/cmd/bench/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the %s: %v\n%s", name, err, out)
	}
	return os.ReadFile(to)
}

func (e *env) baselineCommand(binary, server, pki, root string) []string {
	return []string{binary, "-server", server, "-collection", controllerconfig.OpenShift.Path(), "-name", baselineName,
		"-pki", pki, "-root", root}
}

// baselineIdentity gives the baseline a client certificate. The agents' group may not read its object.
func (e *env) baselineIdentity(put func(name string, data []byte) error) error {
	ca := e.Plane.CA()
	pair := ca.Client("baseline", "system:masters")
	for name, data := range map[string][]byte{"ca.crt": ca.PEM(), "client.crt": pair.Cert, "client.key": pair.Key} {
		if err := put(name, data); err != nil {
			return err
		}
	}
	return nil
}

// begin creates both objects and starts both arms.
func (e *env) begin(ctx context.Context) error {
	e.arms = []*arm{{name: "baseline", root: e.Host.Path(baselineRoot), store: e.Store},
		{name: "agent", root: e.Host.Path("/"), store: e.Store}}
	e.arms[0].store.Name = baselineName
	for _, a := range e.arms {
		a.content = controllerconfig.NewContent(21) // with the other bundles, 25 files
		if _, err := a.store.Create(ctx, a.content.Spec); err != nil {
			return err
		}
	}
	if _, err := e.Host.Run(ctx, "systemctl", "start", agentUnit, baselineUnit); err != nil {
		return err
	}
	for _, a := range e.arms {
		want := a.want(a.content.Spec)
		if err := wait.Until(ctx, "the first files of the "+a.name, func() bool { return hold(want) }); err != nil {
			return err
		}
	}
	return e.look()
}

// look observes all files that are there.
func (e *env) look() (err error) {
	var dirs []string
	for _, a := range e.arms {
		for path := range a.want(a.content.Spec) {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	e.observer, err = newObserver(dirs...)
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

// pause lets time pass in which nothing is measured or, in part, nothing shall happen.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// processed waits until the agent has finished with a version of its object.
func (e *env) processed(ctx context.Context, version string) error {
	return wait.Until(ctx, "version "+version,
		func() bool { return e.Status().ControllerConfig.ResourceVersion == version })
}

func (e *env) stop() error {
	var err error
	e.approver.Stop()
	if e.Cluster != nil {
		err = e.Cluster.Stop()
	}
	if e.dir != "" {
		_ = os.RemoveAll(e.dir)
	}
	return err
}
