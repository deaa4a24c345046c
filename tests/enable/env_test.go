// SPDX-License-Identifier: Apache-2.0

//go:build real

package enable

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// env is what all tests share: a control plane with the ControllerConfig, and the folder of somebody who provisions
// hosts for it, a copy of the sources with the packages made and a bootstrap kubeconfig.
type env struct {
	plane *controlplane.Plane
	dir   string
	tools string // kubectl, oc, podman and butane
	ca    []byte // in every field of the ControllerConfig but the API server's own CA
}

var (
	shared  = sync.OnceValues(prepare)
	cleanUp []func() error
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, f := range cleanUp {
		if err := f(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// sharedEnv is the shared environment, made when it is first asked for.
func sharedEnv(t *testing.T) *env {
	t.Helper()
	e, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func prepare() (*env, error) {
	ctx := context.Background()
	e := &env{ca: testpki.NewCA("enabled")}
	var err error
	if e.dir, err = os.MkdirTemp("", "enable"); err != nil {
		return nil, err
	}
	cleanUp = append(cleanUp, func() error { return os.RemoveAll(e.dir) })
	if e.plane, err = controlplane.Start(ctx, controlplane.Options{}); err != nil {
		return nil, err
	}
	cleanUp = append([]func() error{e.plane.Stop}, cleanUp...)
	if err := e.fill(ctx); err != nil {
		return nil, err
	}
	for _, heading := range []string{"The cluster's side", "A token"} {
		script, err := script(install, heading)
		if err != nil {
			return nil, err
		}
		if _, err := e.run(script); err != nil {
			return nil, err
		}
	}
	if err := e.plane.InstallShipped(ctx); err != nil { // which also waits until all of it is in force
		return nil, err
	}
	small := controllerconfig.Store{API: controllerconfig.Small, URL: e.plane.URL(), Client: e.plane.AdminClient()}
	_, err = small.Create(ctx, controllerconfig.Spec{KubeAPIServerServingCAData: e.ca, RootCAData: e.plane.CA().PEM(),
		AdditionalTrustBundle: e.ca})
	return e, err
}

// What stands in for two programs: oc is kubectl and knows the name of the node image, and podman builds with
// what podman builds with, in a store of its own, without a container runtime.
const (
	baseImage = "localhost/rhel-coreos"
	oc        = `#!/bin/sh
[ "$*" = "adm release info --image-for=rhel-coreos" ] || exec kubectl "$@"
echo ` + baseImage + `
`
	podman = `#!/bin/sh -e
dir=$(dirname "$0")/../images
export BUILDAH_ISOLATION=chroot
exec buildah --root "$dir/store" --runroot "$dir/run" --storage-driver overlay "$@"
`
)

// fill makes the folder and the tools.
func (e *env) fill(ctx context.Context) error {
	repo, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("finding the sources: %w", err)
	}
	top := strings.TrimSpace(string(repo))
	copying := exec.Command("sh", "-ec",
		`git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || cp --parents "$f" "$0"; done' "$1"`, "sh", e.dir)
	copying.Dir = top
	if out, err := copying.CombinedOutput(); err != nil {
		return fmt.Errorf("copying the sources: %v: %s", err, out)
	}
	servers, err := controlplane.Build(ctx, io.Discard)
	if err != nil {
		return err
	}
	e.tools = filepath.Join(e.dir, "tools")
	if err := os.Mkdir(e.tools, 0o755); err != nil {
		return err
	}
	if err := os.Symlink(filepath.Join(servers.Dir, "kubectl"), filepath.Join(e.tools, "kubectl")); err != nil {
		return err
	}
	// Not links: a program may go by the name that it is called.
	for name, text := range map[string]string{"oc": oc, "podman": podman} {
		if err := os.WriteFile(filepath.Join(e.tools, name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	_, err = e.run(`go build -C tests/enable/butane -ldflags '-X github.com/coreos/butane/internal/version.Raw=0.25.1' -o ../../../tools/butane github.com/coreos/butane/internal
make deb ARCHES=` + runtime.GOARCH)
	return err
}

// run runs a script as the one who provisions, in the folder.
func (e *env) run(script string, env ...string) (string, error) {
	cmd := exec.Command("sh", "-e", "-c", script)
	cmd.Dir = e.dir
	cmd.Env = append(os.Environ(), append(env, "PATH="+e.tools+":"+os.Getenv("PATH"),
		"KUBECONFIG="+filepath.Join(e.plane.Dir(), "admin.kubeconfig"))...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%v, from\n%s\nwhich said\n%s", err, script, out)
	}
	return string(out), nil
}

func (e *env) must(t *testing.T, script string, env ...string) string {
	t.Helper()
	out, err := e.run(script, env...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (e *env) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(e.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// script is the one shell block below a heading.
func script(page, heading string) (string, error) {
	all, err := sections(page)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(s section) bool { return s.heading == heading })
	if i < 0 || len(all[i].blocks["sh"]) != 1 {
		return "", fmt.Errorf("docs/usage/%s has no section %q with one block", page, heading)
	}
	return all[i].blocks["sh"][0], nil
}
