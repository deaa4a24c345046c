// SPDX-License-Identifier: Apache-2.0

//go:build real

package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

const (
	place   = "registry.example/node-cert-controller"
	account = "system:serviceaccount:node-cert-agent:node-cert-controller"
)

func TestInstallYAMLNeedsToBeToldWhereTheImageIs(t *testing.T) {
	for name, c := range map[string]struct{ args, want string }{
		"no place": {"", "IMAGE=registry.example/node-cert-controller"},
		"no image": {"IMAGE=" + place + " IMAGE_LAYOUT=none", "run make image first"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"-C", "../..", "install-yaml"}, strings.Fields(c.args)...)
			out, err := exec.Command("make", args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, and it says %q", err, out)
			}
		})
	}
}

func TestInstallYAMLAloneIsEnough(t *testing.T) {
	dir, l := build(t, "022", runtime.GOARCH)
	run(t, dir, "make", "install-yaml", "IMAGE="+place)
	file := filepath.Join(dir, "dist/install.yaml")
	p, err := controlplane.Start(t.Context(), controlplane.Options{Progress: t.Output()})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, p.Stop()) })
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := p.Kubectl(t.Context(), args...)
		must.Do(t, err)
		return out
	}
	kubectl("apply", "--server-side", "-f", file)

	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Image string
						Args  []string
					}
				}
			}
		}
	}
	must.Do(t, json.Unmarshal([]byte(kubectl("-n", "node-cert-agent", "get", "deployment", "node-cert-controller",
		"-o", "json")), &deployment))
	container := deployment.Spec.Template.Spec.Containers[0]
	if digest, _ := l.index(); container.Image != place+"@"+digest {
		t.Errorf("the image is %s, want that of %s", container.Image, digest)
	}

	kubeconfig, err := p.Kubeconfig(p.URL(), account, "system:serviceaccounts", "system:serviceaccounts:node-cert-agent",
		"system:authenticated")
	must.Do(t, err)
	said := start(t, extracted(t, l), append(container.Args, "--kubeconfig="+kubeconfig)...)
	text, err := json.Marshal(string(testpki.NewCA("published")))
	must.Do(t, err)
	wait.For(t, "a NodeBundle", func() bool {
		return p.Apply(t.Context(), fmt.Appendf(nil, "{apiVersion: node-cert-agent.io/v1alpha1, kind: NodeBundle, "+
			"metadata: {name: x}, spec: {field: rootCAData, sources: [{inline: %s}]}}", text)) == nil
	})
	wait.For(t, "the ControllerConfig", func() bool {
		out, err := p.Kubectl(t.Context(), "get", "controllerconfig.node-cert-agent.io/machine-config-controller",
			"-o", "jsonpath={.spec.rootCAData}")
		return err == nil && out != ""
	})
	if out := said(); strings.Contains(out, "forbidden") {
		t.Errorf("it lacks a right:\n%s", out)
	}
}

// start runs the program, and said stops it and is what it logged.
func start(t *testing.T, program string, args ...string) (said func() string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &out, []string{"HOME=" + os.DevNull}
	must.Do(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopped := false
	said = func() string {
		if !stopped {
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := <-ended; err != nil {
				t.Errorf("it ended with %v", err)
			}
		}
		return out.String()
	}
	t.Cleanup(func() { t.Log(said()) })
	return said
}
