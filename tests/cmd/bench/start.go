// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// start is the time from the exec of an agent that has an identity, and nothing else, to its first
// file. It runs in plain mode, without systemd in the way, on an empty tree on the host's disk.
func start(ctx context.Context, e *env, p plan, t *figures.Table) error {
	s, err := newStarts(e)
	if err != nil {
		return err
	}
	times := map[string]figures.Samples{}
	for range p.starts {
		for _, i := range rand.Perm(len(e.arms)) {
			a := e.arms[i]
			took, err := s.once(ctx, a)
			if err != nil {
				return fmt.Errorf("the %s: %w", a.name, err)
			}
			times[a.name] = append(times[a.name], took)
		}
	}
	t.Compare("exec -> first file", times, nil)
	t.Judge("  agent, p50", times["agent"].Milliseconds(.5), 40, "ms")
	return nil
}

// starts are the commands, and what they need beside an empty tree.
type starts struct {
	tree     string
	commands map[string][]string
}

func newStarts(e *env) (*starts, error) {
	s := &starts{tree: filepath.Join(e.Host.Dir(), "root/srv/start")}
	kubeconfig, err := e.Plane.Kubeconfig(e.Plane.URL(), "node-cert-agent:node:start", "node-cert-agent:nodes")
	if err != nil {
		return nil, err
	}
	err = e.baselineIdentity(func(name string, data []byte) error {
		return os.WriteFile(filepath.Join(e.dir, name), data, 0o600)
	})
	if err != nil {
		return nil, err
	}
	fragments := filepath.Join(e.dir, "config.d")
	if err := os.Mkdir(fragments, 0o755); err != nil {
		return nil, err
	}
	s.commands = map[string][]string{
		"baseline": e.baselineCommand(filepath.Join(e.dir, "baseline"), e.Plane.URL(), e.dir, s.tree),
		"agent": {e.Host.Path("/usr/bin/node-cert-agent"), "run", "--root", s.tree, "--config-dir", fragments, "--kubeconfig",
			kubeconfig},
	}
	return s, os.WriteFile(filepath.Join(fragments, "50-bench.yaml"), []byte(config), 0o644)
}

// once starts one program and ends it when its first file is there.
func (s *starts) once(ctx context.Context, a *arm) (took time.Duration, err error) {
	defer func() { _ = os.RemoveAll(s.tree) }()
	for place := range controllerconfig.Files(controllerconfig.Spec{KubeAPIServerServingCAData: []byte{1}, CloudProviderCAData: []byte{1},
		AdditionalTrustBundle: []byte{1}}) {
		if err := os.MkdirAll(filepath.Join(s.tree, filepath.Dir(place)), 0o755); err != nil {
			return 0, err
		}
	}
	if err := os.MkdirAll(filepath.Join(s.tree, controllerconfig.CertsD), 0o755); err != nil {
		return 0, err
	}
	file := filepath.Join(s.tree, controllerconfig.KubeletCA)
	observer, err := newObserver(filepath.Dir(file))
	if err != nil {
		return 0, err
	}
	pause(ctx, shortPause)
	var said bytes.Buffer
	command := s.commands[a.name]
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	ctx, cancel := context.WithTimeout(ctx, wait.Limit)
	defer cancel()
	first, _, err := observer.await(ctx, map[string][]byte{file: a.content.Spec.KubeAPIServerServingCAData})
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, said.String())
	}
	return first.Sub(began), nil
}
