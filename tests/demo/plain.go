// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/tests/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/controlplane/controllerconfig"
)

// inFolder is a stage without privileges: the agent in plain mode, on a tree of its own.
type inFolder struct {
	servers *controlplane.Plane
	dir     string // removed at the end; holds the root and the agent's binary
	ended   chan struct{}
	agent   *exec.Cmd
}

func setFolder(ctx context.Context, t *teller, binary string) (_ stage, err error) {
	t.say("This is the main job of node-cert-agent in plain mode: a real Kubernetes control plane, and a folder in")
	t.say("place of a host. Lines that begin with \"$ \" are commands.")
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
	if err = f.install(ctx, binary); err != nil {
		return nil, err
	}
	if f.servers, err = controlplane.Start(ctx, controlplane.Options{Progress: t}); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{f.servers.InstallCRD, f.servers.AllowAgents} {
		if err = step(ctx); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// install puts the binary, and the directories and the configuration that a package would bring.
func (f *inFolder) install(ctx context.Context, binary string) error {
	for _, dir := range []string{"/etc/kubernetes", "/etc/docker/certs.d", "/usr/local/share/ca-certificates", "/etc/node-cert-agent/config.d"} {
		if err := os.MkdirAll(f.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(f.path(cluster.Fragment), []byte(site), 0o644); err != nil {
		return err
	}
	to := filepath.Join(f.dir, "bin", "node-cert-agent")
	if binary == "" {
		return cluster.Build(ctx, to)
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Symlink(binary, to)
}

func (f *inFolder) plane() *controlplane.Plane { return f.servers }
func (f *inFolder) store() controllerconfig.Store {
	return controllerconfig.Store{API: controllerconfig.Small, URL: f.servers.URL(), Client: f.servers.AdminClient()}
}
func (f *inFolder) units() bool             { return false }
func (f *inFolder) root() string            { return filepath.Join(f.dir, "root") }
func (f *inFolder) name(file string) string { return "$ROOT" + file }
func (f *inFolder) path(file string) string { return filepath.Join(f.root(), file) }
func (f *inFolder) log() string             { return filepath.Join(f.dir, "root", "agent.log") }
func (f *inFolder) environment() (e []string) {
	return append(os.Environ(), "ROOT="+f.root(), "PATH="+filepath.Join(f.dir, "bin")+":"+os.Getenv("PATH"))
}

func (f *inFolder) startAgent(ctx context.Context) (string, error) {
	file, err := f.servers.Kubeconfig(f.servers.URL(), "node-cert-agent:node:demo", "node-cert-agent:nodes")
	if err != nil {
		return "", err
	}
	if err := os.Rename(file, f.path(cluster.Kubeconfig)); err != nil {
		return "", err
	}
	log, err := os.Create(f.log())
	if err != nil {
		return "", err
	}
	defer log.Close()
	f.agent = exec.Command(filepath.Join(f.dir, "bin", "node-cert-agent"), "run", "--root", f.root(), "--kubeconfig", f.path(cluster.Kubeconfig))
	f.agent.Stdout, f.agent.Stderr = log, log
	// It dies with us, and a Ctrl-C at the terminal is ours to act on.
	f.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	f.ended = make(chan struct{})
	go func() {
		// PR_SET_PDEATHSIG(2const) is about the thread that forked, so that one has to stay.
		runtime.LockOSThread()
		err := f.agent.Start()
		started <- err
		if err == nil {
			_ = f.agent.Wait() // how it ends is told by what it did
		}
		close(f.ended)
	}()
	return "node-cert-agent run --root $ROOT --kubeconfig " + f.name(cluster.Kubeconfig) + " 2>$ROOT/agent.log &", <-started
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
    tail -f $ROOT/agent.log`, f.root(), filepath.Join(f.dir, "bin"))
}

func (f *inFolder) stop() error {
	var errs []error
	if f.ended != nil && f.agent.Process != nil {
		_ = f.agent.Process.Signal(syscall.SIGTERM) // may have ended by itself
		<-f.ended
	}
	if f.servers != nil {
		errs = append(errs, f.servers.Stop())
	}
	if f.dir != "" {
		errs = append(errs, os.RemoveAll(f.dir))
	}
	return errors.Join(errs...)
}
