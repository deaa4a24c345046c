// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
)

// inFolder is a stage without privileges: the agent in plain mode, on a tree of its own.
type inFolder struct {
	servers *controlplane.Plane
	dir     string // removed at the end; holds the root and the agent's binary
	agent   *cluster.Process
}

func setFolder(ctx context.Context, t *transcript, binaries string) (_ stage, err error) {
	t.say("This is the main job of node-cert-agent in plain mode: a real Kubernetes control plane, and a folder in")
	t.say("place of a host. Lines that begin with \"$ \" are commands; \"cluster$ \" is the cluster's administrator.")
	t.say("It takes less than a minute, once etcd and Kubernetes have been built.")
	t.say("Left out, because it takes root and systemd: the privileged half as a process of its own, the reload")
	t.say("of units, the refusal of others by systemd, and the journal. Run as root, the demo shows these as well.")
	t.chapter("A cluster and a folder")
	f := &inFolder{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("setting the stage: %w", err), f.stop())
		}
	}()
	if f.dir, err = os.MkdirTemp("", "node-cert-agent-demo-"); err != nil {
		return nil, err
	}
	if err = f.install(ctx, binaries); err != nil {
		return nil, err
	}
	if f.servers, err = controlplane.Start(ctx, controlplane.Options{Progress: t}); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{f.servers.InstallShipped, f.servers.InstallSingleUse} {
		if err = step(ctx); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// install puts the binaries, and the directories and the configuration that a package would bring.
func (f *inFolder) install(ctx context.Context, binaries string) error {
	for _, dir := range []string{"/etc/kubernetes", "/etc/docker/certs.d", "/usr/local/share/ca-certificates",
		"/etc/node-cert-agent/config.d"} {
		if err := os.MkdirAll(f.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Mkdir(f.path(cluster.BootstrapDir), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(f.path(cluster.Fragment), []byte(site+"node: {name: "+node+"}\n"), 0o644); err != nil {
		return err
	}
	if binaries != "" {
		binaries, err := filepath.Abs(binaries)
		if err != nil {
			return err
		}
		return os.Symlink(binaries, f.bin())
	}
	for _, name := range []string{"node-cert-agent", "node-cert-controller"} {
		if err := cluster.Build(ctx, filepath.Join(f.bin(), name)); err != nil {
			return err
		}
	}
	return nil
}

func (f *inFolder) plane() *controlplane.Plane { return f.servers }
func (f *inFolder) store() controllerconfig.Store {
	return controllerconfig.Store{API: controllerconfig.Small, URL: f.servers.URL(), Client: f.servers.AdminClient()}
}
func (f *inFolder) units() bool             { return false }
func (f *inFolder) root() string            { return filepath.Join(f.dir, "root") }
func (f *inFolder) name(file string) string { return "$ROOT" + file }
func (f *inFolder) path(file string) string { return filepath.Join(f.root(), file) }
func (f *inFolder) log() string             { return f.path("agent.log") }
func (f *inFolder) bin() string             { return filepath.Join(f.dir, "bin") }
func (f *inFolder) approverBinary() string  { return filepath.Join(f.bin(), "node-cert-controller") }
func (f *inFolder) putToken() error {
	return os.WriteFile(f.path(cluster.BootstrapDir+"/10-"+token+".kubeconfig"),
		cluster.TokenKubeconfig(f.servers, f.servers.URL(), token), 0o600)
}
func (f *inFolder) environment() (e []string) {
	return append(os.Environ(), "ROOT="+f.root(), "PATH="+f.bin()+":"+os.Getenv("PATH"))
}

func (f *inFolder) startAgent(context.Context) (string, error) {
	log, err := os.Create(f.log())
	if err != nil {
		return "", err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(f.bin(), "node-cert-agent"), "run", "--root", f.root())
	cmd.Stdout, cmd.Stderr = log, log
	f.agent, err = cluster.Launch(cmd)
	return "node-cert-agent run --root $ROOT 2>$ROOT/agent.log &", err
}

func (f *inFolder) sh(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Env = f.environment()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (f *inFolder) sync(context.Context) error { return nil }

func (f *inFolder) status() string { return "node-cert-agent status --root $ROOT" }

func (f *inFolder) records() string { return `sed 's/ [a-z_]*=".*//' $ROOT/agent.log` }

func (f *inFolder) record(k audit.Kind, detailed bool) string {
	word := map[audit.ID]string{audit.Refused.ID: "refused", audit.Written.ID: "wrote"}[k.ID]
	command := fmt.Sprintf("grep '^%s ' $ROOT/agent.log | tail -n 1", word)
	if detailed {
		return command + ` | sed 's/ \([a-z_]*="\)/\n  \1/g'`
	}
	return command + ` | sed 's/ [a-z_]*=".*//'`
}

func (f *inFolder) visit() string {
	return fmt.Sprintf(`The folder and the agent:

    export ROOT=%s PATH=%s:$PATH

What to look at there:

    node-cert-agent status --root $ROOT
    tail -f $ROOT/agent.log`, f.root(), f.bin())
}

func (f *inFolder) stop() error {
	var errs []error
	f.agent.Stop()
	if f.servers != nil {
		errs = append(errs, f.servers.Stop())
	}
	if f.dir != "" {
		errs = append(errs, os.RemoveAll(f.dir))
	}
	return errors.Join(errs...)
}
