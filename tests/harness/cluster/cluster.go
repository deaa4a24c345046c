// SPDX-License-Identifier: Apache-2.0

// Package cluster puts the product on a real host and connects it to a real control plane: what the
// end-to-end tests, the demo and the benchmarks have in common.
//
// It installs what a package would (the binary, the systemd tree, a fragment of configuration), gives
// the host a kubeconfig, opens the API server's port in the host's own network, and adds two small
// services that read the managed files. It promises that Stop leaves nothing behind. It asserts
// nothing; that is for its users.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

const (
	// Server is where the host finds the API server.
	Server = "https://127.0.0.1:6443"
	inside = "127.0.0.1:6443"
	// Kubeconfig is the agent's on the host.
	Kubeconfig = "/etc/node-cert-agent/kubeconfig"
	// Fragment is the host's configuration.
	Fragment = "/etc/node-cert-agent/config.d/50-site.yaml"
	// StatusFile is where the agent says how it stands.
	StatusFile = "/run/node-cert-agent/status.json"
	// KubeletCA is the file that Reader and Unlisted read.
	KubeletCA = "/etc/kubernetes/kubelet-ca.crt"
	// Reader is a service that loads KubeletCA when it starts and when it is reloaded; it notes each
	// load in ReaderLog.
	Reader = "reader.service"
	// ReaderLog has a line for each load.
	ReaderLog = "/run/reader.log"
	// Unlisted is the same and not on the allowlist.
	Unlisted = "unlisted.service"
)

// Config is a fragment that allows a reload of Reader, at once, and mirrors the ControllerConfig: what holds do
// has stories of its own.
const Config = `apiVersion: config.node-cert-agent.io/v1alpha1
files:
  kubeAPIServerServingCAData: {onChange: [reader.service]}
  additionalTrustBundle: {path: "/usr/local/share/ca-certificates/{sha256}.crt"}
units:
  reader.service: {verb: reload}
actions: {batchWindow: 200ms, randomizedDelay: 0s}
trust: {holdRemovals: 0s, source: ""}
watch: {retryJitter: 200ms, retryMax: 1s}
`

// Options are how a cluster differs from the usual one.
type Options struct {
	// API is the kind of the ControllerConfig; the default is Small.
	API controllerconfig.API
	// Config replaces Config.
	Config string
	// Bootstrap starts the agent without a kubeconfig: it gets its identity by itself, with a token
	// that PutToken gives it. Nobody approves its requests but Approve.
	Bootstrap bool
	// Kubelet adds a kubelet to the host, which is not started.
	Kubelet bool
	// Shipped installs everything that the project ships for a cluster, so that StartApprover works, in
	// place of the kinds and the agents' permissions alone.
	Shipped bool
	// Install installs the agent on the booted host, in place of this tree's files. Nil copies those.
	Install func(context.Context, *host.Host) error
	// Plane and Host are passed on.
	Plane controlplane.Options
	Host  host.Options
	// Progress is told what is being built; nil means that nobody listens.
	Progress io.Writer
}

// Cluster is a control plane and one host.
type Cluster struct {
	Plane *controlplane.Plane
	Host  *host.Host
	// Store is the ControllerConfig, as the administrator.
	Store controllerconfig.Store
	port  *host.Port
	// joined is set if the control plane is another's.
	joined bool
}

// Start brings up both; the agent is installed and not started.
func Start(ctx context.Context, o Options) (c *Cluster, err error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.API == (controllerconfig.API{}) {
		o.API = controllerconfig.Small
	}
	c = &Cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
			c = nil
		}
	}()
	plane := make(chan error, 1)
	go func() { plane <- c.startPlane(ctx, o) }()
	err = c.startHost(ctx, o)
	if err = errors.Join(<-plane, err); err != nil {
		return c, err
	}
	c.Store = controllerconfig.Store{API: o.API, URL: c.Plane.URL(), Client: c.Plane.AdminClient()}
	return c, c.connect(ctx, o.Bootstrap)
}

// Join brings up another host of the same control plane; its agent is installed and not started.
func (c *Cluster) Join(ctx context.Context, o Options) (*Cluster, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	other := &Cluster{Plane: c.Plane, Store: c.Store, joined: true}
	err := other.startHost(ctx, o)
	if err == nil {
		err = other.connect(ctx, o.Bootstrap)
	}
	if err != nil {
		return nil, errors.Join(err, other.Stop())
	}
	return other, nil
}

func (c *Cluster) startPlane(ctx context.Context, o Options) (err error) {
	o.Plane.Progress = o.Progress
	if c.Plane, err = controlplane.Start(ctx, o.Plane); err != nil || o.Plane.APIServerOff {
		return err
	}
	if o.Shipped {
		if err := c.Plane.InstallShipped(ctx); err != nil {
			return err
		}
		return c.Plane.InstallSingleUse(ctx)
	}
	return c.Prepare(ctx)
}

// Prepare installs both kinds and the agents' permissions. Start does it unless the API server was
// left off.
func (c *Cluster) Prepare(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		c.Plane.InstallOpenShiftCRD, c.Plane.InstallCRD, c.Plane.AllowAgents} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startHost(ctx context.Context, o Options) error {
	install, err := os.MkdirTemp("", "install")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(install) }()
	if o.Install == nil {
		trees, err := Trees(ctx, install)
		if err != nil {
			return err
		}
		o.Host.Trees = append(trees, o.Host.Trees...)
	}
	files := map[string]host.File{
		Fragment:                          {Data: []byte(o.Config)},
		"/etc/systemd/system/" + Reader:   {Data: []byte(reader("reader"))},
		"/etc/systemd/system/" + Unlisted: {Data: []byte(reader("unlisted"))},
		"/etc/systemd/system/node-cert-agent.service.d/kubeconfig.conf": {Data: []byte("[Service]\nExecStart=\nExecStart=/usr/bin/node-cert-agent run --kubeconfig " + Kubeconfig + "\nRestartSec=100ms\n")},
	}
	if o.Bootstrap {
		files["/etc/systemd/system/node-cert-agent.service.d/kubeconfig.conf"] = host.File{Data: []byte("[Service]\nRestartSec=100ms\n")}
	}
	if o.Config == "" {
		files[Fragment] = host.File{Data: []byte(Config)}
	}
	maps.Copy(files, o.Host.Files)
	o.Host.Files = files
	if o.Kubelet {
		if err := withKubelet(ctx, &o.Host, o.Progress); err != nil {
			return err
		}
	}
	if c.Host, err = host.Boot(ctx, o.Host); err != nil || o.Install == nil {
		return err
	}
	return o.Install(ctx, c.Host)
}

// Trees are what a package installs, as directories to copy over a host's root. The program is built into dir,
// which is one of them.
func Trees(ctx context.Context, dir string) ([]string, error) {
	repo, err := repository(ctx)
	if err != nil {
		return nil, err
	}
	if err := Build(ctx, filepath.Join(dir, "usr/bin/node-cert-agent")); err != nil {
		return nil, err
	}
	return []string{filepath.Join(repo, "systemd"), filepath.Join(repo, "deb/tree"), dir}, nil
}

// reader is a service that copies KubeletCA when it loads, and logs that it did. Only then does systemd call the
// load done, at a start too.
func reader(name string) string {
	load := func(event string) string {
		return fmt.Sprintf("cp -f %s /run/%s.loaded 2>/dev/null; echo %s >>/run/%s.log", KubeletCA, name, event, name)
	}
	return fmt.Sprintf("[Service]\nExecStartPre=/bin/sh -c '%s'\nExecStart=/bin/sleep infinity\nExecReload=/bin/sh -c "+
		"'%s'\n", load("start"), load("reload"))
}

// connect opens the API server's port on the host and gives it an identity.
func (c *Cluster) connect(ctx context.Context, bootstrap bool) error {
	u, err := url.Parse(c.Plane.URL())
	if err != nil {
		return err
	}
	if c.port, err = c.Host.Listen(ctx, inside, u.Host); err != nil {
		return err
	}
	if bootstrap {
		return nil
	}
	file, err := c.Plane.Kubeconfig(Server, "node-cert-agent:node:node", "node-cert-agent:nodes")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := c.Host.PutFile(Kubeconfig, host.File{Data: data, Mode: 0o600}); err != nil {
		return err
	}
	_, err = c.Host.Run(ctx, "chown", "root:node-cert-agent", Kubeconfig)
	if err == nil {
		_, err = c.Host.Run(ctx, "chmod", "0640", Kubeconfig)
	}
	return err
}

// StartAgent starts the agent's service and the two readers, and returns when they are ready.
func (c *Cluster) StartAgent(ctx context.Context) error {
	_, err := c.Host.Run(ctx, "systemctl", "start", Reader, Unlisted, "node-cert-agent.service")
	return err
}

// Loads counts how often Reader loaded its file, by event: start or reload.
func (c *Cluster) Loads(ctx context.Context, event string) int {
	out, _ := c.Host.Run(ctx, "cat", ReaderLog)
	return strings.Count(out, event+"\n")
}

// File is the content of a file of the host, empty if there is none.
func (c *Cluster) File(path string) []byte {
	b, _ := os.ReadFile(c.Host.Path(path))
	return b
}

// Status is the agent's, empty before there is one.
func (c *Cluster) Status() (s report.Status) {
	_ = json.Unmarshal(c.File(StatusFile), &s)
	return s
}

// Stop ends both and removes them. A host that has joined ends alone.
func (c *Cluster) Stop() error {
	var errs []error
	if c.port != nil {
		c.port.Close()
	}
	if c.Host != nil {
		errs = append(errs, c.Host.Stop())
	}
	if c.Plane != nil && !c.joined {
		errs = append(errs, c.Plane.Stop())
	}
	return errors.Join(errs...)
}

func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %v", err)
	}
	return strings.TrimSpace(string(out)), nil
}
