// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// The names under which the one binary of the servers is started, those of what runs on hosts, and the
// file beside them that holds OpenShift's definition of the ControllerConfig.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	kubectl           = "kubectl"
	kubelet           = "kubelet"
	kubeadm           = "kubeadm"
	openShiftCRD      = "openshift-controllerconfigs.crd.yaml"
)

// crdInModule is where github.com/openshift/api keeps that definition: the variant of a cluster
// with no feature set chosen.
const crdInModule = "machineconfiguration/v1/zz_generated.crd-manifests/0000_80_machine-config_01_controllerconfigs-Default.crd.yaml"

// Binaries is what Build made.
type Binaries struct {
	// Dir holds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl, all of them
	// links to one file named servers, and kubelet and kubeadm. All are static.
	Dir string
	// root is the repository, from which the manifests are read that nodes and clusters get.
	root string
}

// Kubelet is the kubelet's file. It is static.
func (b Binaries) Kubelet() string { return b.path(kubelet) }

// Etcd is etcd's file. It is static.
func (b Binaries) Etcd() string { return b.path("etcd") }

func (b Binaries) path(name string) string { return filepath.Join(b.Dir, name) }

// Build makes the servers unless an earlier build of the same sources, by the same Go, is in the
// user's cache folder ($XDG_CACHE_HOME or ~/.cache, node-cert-agent/controlplane). The first build
// downloads about 1 GB of modules and takes 5 to 15 minutes on two cores; afterwards this is a
// matter of milliseconds. Two builds at once are safe: one waits for the other.
//
// The current folder must be in the repository. What happens is told on progress, line by line.
func Build(ctx context.Context, progress io.Writer) (Binaries, error) {
	env, err := goEnv(ctx)
	if err != nil {
		return Binaries{}, err
	}
	root := filepath.Dir(env.GOMOD)
	src := filepath.Join(root, "tests", "harness", "controlplane", "servers")
	key, err := buildKey(src, env.GOVERSION)
	if err != nil {
		return Binaries{}, fmt.Errorf("reading the sources of the servers: %v", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Binaries{}, fmt.Errorf("finding the cache folder: %v", err)
	}
	b := Binaries{Dir: filepath.Join(cache, "node-cert-agent", "controlplane", key), root: root}
	if exists(b.Dir) {
		return b, nil
	}
	return b, b.build(ctx, src, progress)
}

// build fills a temporary folder and renames it to b.Dir, so that a folder under that name is
// always complete.
func (b Binaries) build(ctx context.Context, src string, progress io.Writer) error {
	parent := filepath.Dir(b.Dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(parent, "lock"), progress)
	if err != nil {
		return err
	}
	defer unlock()
	if exists(b.Dir) {
		return nil
	}
	tmp, err := os.MkdirTemp(parent, "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	start := time.Now()
	fmt.Fprintf(progress, "building etcd, the servers of Kubernetes, kubectl, kubelet and kubeadm into %s: 5 to 15 "+
		"minutes the first time\n", b.Dir)
	if err := compile(ctx, src, tmp, progress); err != nil {
		return err
	}
	for _, name := range []string{etcd, apiServer, controllerManager, scheduler, kubectl} {
		if err := os.Symlink("servers", filepath.Join(tmp, name)); err != nil {
			return err
		}
	}
	if err := copyCRD(ctx, src, tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.Rename(tmp, b.Dir); err != nil {
		return err
	}
	fmt.Fprintf(progress, "built in %s\n", time.Since(start).Round(time.Second))
	return nil
}

func compile(ctx context.Context, src, dst string, progress io.Writer) error {
	version, err := goCommand(ctx, src, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return fmt.Errorf("finding the version of Kubernetes: %v", err)
	}
	// kubeadm compares the versions that the others say they have.
	link := "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=" + strings.TrimSpace(string(version))
	cmd := goCommand(ctx, src, "build", "-v", "-trimpath", "-buildvcs=false", link,
		"-o", dst+string(filepath.Separator), ".", "./"+kubelet, "./"+kubeadm)
	cmd.Stderr = &buildLog{to: progress}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the servers in %s: %v", src, err)
	}
	return nil
}

// copyCRD copies, because the module cache may be cleaned while this folder stays. It downloads the
// module, because a build that links nothing of it does not.
func copyCRD(ctx context.Context, src, dst string) error {
	const module = "github.com/openshift/api"
	out, err := goCommand(ctx, src, "mod", "download", "-json", module).Output()
	if err != nil {
		return fmt.Errorf("downloading %s: %v", module, err)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return fmt.Errorf("reading the answer of go mod download: %v", err)
	}
	crd, err := os.ReadFile(filepath.Join(downloaded.Dir, crdInModule))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dst, openShiftCRD), crd, 0o644)
}

// buildLog turns the output of go build -v, a package a line, into a word every hundred packages;
// other lines are errors and pass.
type buildLog struct {
	to       io.Writer
	rest     string
	packages int
}

func (l *buildLog) Write(b []byte) (int, error) {
	lines := strings.Split(l.rest+string(b), "\n")
	l.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		if strings.ContainsAny(line, " #") {
			fmt.Fprintln(l.to, line)
		} else if l.packages++; l.packages%100 == 0 {
			fmt.Fprintf(l.to, "  %d packages\n", l.packages)
		}
	}
	return len(b), nil
}

// environment is the part of go env that matters here.
type environment struct{ GOMOD, GOVERSION string }

func goEnv(ctx context.Context) (env environment, err error) {
	out, err := goCommand(ctx, "", "env", "-json", "GOMOD", "GOVERSION").Output()
	if err != nil {
		return env, fmt.Errorf("asking go for its environment: %v", err)
	}
	if err := json.Unmarshal(out, &env); err != nil {
		return env, fmt.Errorf("reading the answer of go env: %v", err)
	}
	if !exists(filepath.Join(filepath.Dir(env.GOMOD), "tests", "harness", "controlplane", "servers")) {
		return env, errors.New("the current folder is not in the repository of node-cert-agent")
	}
	return env, nil
}

// goCommand does not let a workspace or the flags of an enclosing go test change what is built.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=linux", "GOARCH=")
	return cmd
}

// buildKey names a build: by its sources, by the Go that compiles them and by this recipe.
func buildKey(src, goVersion string) (string, error) {
	files := []string{filepath.Join(src, "go.mod"), filepath.Join(src, "go.sum")}
	for _, dir := range []string{src, filepath.Join(src, kubelet), filepath.Join(src, kubeadm)} {
		more, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return "", err
		}
		files = append(files, more...)
	}
	h := sha256.New()
	fmt.Fprintln(h, "recipe 3", goVersion, crdInModule)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(file), len(b), b)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// lock takes the file's lock, waiting for whoever has it. The kernel drops it with the process.
func lock(ctx context.Context, file string, progress io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	told := false
	err = wait.Success(ctx, func() error {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil && !told {
			told = true
			fmt.Fprintln(progress, "waiting for another build of the servers to end")
		}
		return err
	})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %v", file, err)
	}
	return func() { f.Close() }, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
