// SPDX-License-Identifier: Apache-2.0

//go:build real

package controlplane_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const (
	agentUser  = "node-cert-agent:node:test"
	agentGroup = "node-cert-agent:nodes"
)

// start starts a plane that is taken down, without complaint, when the test ends.
func start(t *testing.T, o controlplane.Options) *controlplane.Plane {
	t.Helper()
	o.Progress = t.Output()
	begin := time.Now()
	p, err := controlplane.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("ready in %v", time.Since(begin).Round(time.Millisecond))
	return p
}

// get asks for a path and returns the status and, of a body that does not end, the first line.
func get(t *testing.T, client *http.Client, url string) (int, []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must.Do(t, err)
	resp, err := client.Do(req)
	must.Do(t, err)
	defer resp.Body.Close()
	var line json.RawMessage
	must.Do(t, json.NewDecoder(resp.Body).Decode(&line))
	return resp.StatusCode, line
}

func TestAnAgentMayWatchTheOneObjectOfEitherKindAndNothingElse(t *testing.T) {
	p := start(t, controlplane.Options{})
	agent := p.Client(agentUser, agentGroup)
	for _, install := range []func(context.Context) error{p.InstallOpenShiftCRD, p.InstallCRD, p.AllowAgents} {
		must.Do(t, install(t.Context()))
	}
	spec := controllerconfig.Typical(20)
	for _, api := range []controllerconfig.API{controllerconfig.OpenShift, controllerconfig.Small} {
		t.Run(api.Group, func(t *testing.T) {
			store := controllerconfig.Store{API: api, URL: p.URL(), Client: p.AdminClient()}
			created, err := store.Create(t.Context(), spec)
			must.Do(t, err)

			one := "&fieldSelector=" + url.QueryEscape("metadata.name="+controllerconfig.Name)
			code, event := get(t, agent, p.URL()+api.Path()+"?watch=1"+one)
			var added struct {
				Type   string
				Object struct {
					Metadata struct{ ResourceVersion string }
					Spec     controllerconfig.Spec
				}
			}
			must.Do(t, json.Unmarshal(event, &added))
			if code != 200 || added.Type != "ADDED" || added.Object.Metadata.ResourceVersion != created {
				t.Fatalf("watch of the one object: %d %s at %s, want 200 ADDED at %s", code, added.Type,
					added.Object.Metadata.ResourceVersion, created)
			}
			if !bytes.Equal(added.Object.Spec.KubeAPIServerServingCAData, spec.KubeAPIServerServingCAData) ||
				len(added.Object.Spec.ImageRegistryBundleData) != 20 {
				t.Error("the object that comes back is not the one created")
			}
			t.Logf("first event: %d bytes", len(event))

			for what, path := range map[string]string{"watch of all": api.Path() + "?watch=1", "list of all": api.Path(),
				"secrets":        "/api/v1/secrets",
				"another object": api.Path() + "/other"} {
				if code, _ := get(t, agent, p.URL()+path); code != http.StatusForbidden {
					t.Errorf("%s: %d, want 403", what, code)
				}
			}
			agents := store
			agents.Client = agent
			if _, err := agents.Annotate(t.Context(), "a", "b"); err == nil || !strings.Contains(err.Error(), "403") {
				t.Errorf("an agent's write: %v, want 403", err)
			}
			changesMove(t, store, created)
		})
	}
}

// changesMove makes one change of each sort.
func changesMove(t *testing.T, s controllerconfig.Store, last string) {
	t.Helper()
	changes := []func() (string, error){
		func() (string, error) { return s.Annotate(t.Context(), "example.test/touched", "1") },
		func() (string, error) {
			return s.Patch(t.Context(), controllerconfig.Spec{RootCAData: testpki.NewCA("new-root")})
		},
		func() (string, error) {
			return s.Patch(t.Context(), map[string]any{"imageRegistryBundleData": nil})
		},
	}
	for i, change := range changes {
		next, err := change()
		must.Do(t, err)
		if next == "" || next == last {
			t.Errorf("change %d: resourceVersion %q after %q", i, next, last)
		}
		last = next
	}
	must.Do(t, s.Delete(t.Context()))
	if code, _ := get(t, s.Client, s.URL+s.API.Path()+"/"+controllerconfig.Name); code != http.StatusNotFound {
		t.Errorf("after Delete: %d, want 404", code)
	}
}

func TestAKilledAPIServerComesBackOnItsPortWithItsState(t *testing.T) {
	// Without the argument, a terminated API server holds the controllers' watches for a minute.
	p := start(t, controlplane.Options{APIServerArgs: []string{"--shutdown-watch-termination-grace-period=1s"}})
	must.Do(t, p.InstallCRD(t.Context()))
	store := controllerconfig.Store{API: controllerconfig.Small, URL: p.URL(), Client: p.AdminClient()}
	created, err := store.Create(t.Context(), controllerconfig.Spec{RootCAData: testpki.NewCA("root")})
	must.Do(t, err)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		begin := time.Now()
		must.Do(t, p.StopAPIServer(t.Context(), sig))
		p.AdminClient().CloseIdleConnections() // the client may not have noticed yet that one ended
		if _, err := p.AdminClient().Get(p.URL() + "/readyz"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("after %v: %v, want connection refused", sig, err)
		}
		if err := p.StopAPIServer(t.Context(), sig); err == nil {
			t.Fatal("an API server that does not run could be stopped")
		}
		ended := time.Now()
		must.Do(t, p.StartAPIServer(t.Context()))
		t.Logf("%v: ended in %v, ready again in %v", sig, ended.Sub(begin).Round(time.Millisecond),
			time.Since(ended).Round(time.Millisecond))
		_, object := get(t, p.AdminClient(), p.URL()+store.API.Path()+"/"+controllerconfig.Name)
		if !bytes.Contains(object, fmt.Appendf(nil, `"resourceVersion":%q`, created)) {
			t.Fatalf("after %v: not the object of version %s: %.300s", sig, created, object)
		}
	}
}

func TestAFrozenAPIServerSaysNothingUntilItThaws(t *testing.T) {
	p := start(t, controlplane.Options{})
	must.Do(t, p.FreezeAPIServer())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL()+"/version", nil)
	must.Do(t, err)
	if _, err := p.AdminClient().Do(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("frozen: %v, want silence", err)
	}
	must.Do(t, p.ThawAPIServer())
	if code, _ := get(t, p.AdminClient(), p.URL()+"/version"); code != http.StatusOK {
		t.Fatalf("thawed: %d", code)
	}
}

func TestTwoPlanesRunSideBySideAndLeaveNothing(t *testing.T) {
	var planes [2]*controlplane.Plane
	var starting sync.WaitGroup
	for i := range planes {
		starting.Go(func() {
			var err error
			if planes[i], err = controlplane.Start(t.Context(), controlplane.Options{}); err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = planes[i].Stop() }) // what it says is looked at below
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	if _, err := planes[0].AdminClient().Get(planes[1].URL()); err == nil ||
		!strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("one plane's client trusts the other's server: %v", err)
	}
	for i, p := range planes {
		must.Do(t, p.Stop())
		must.Do(t, p.Stop())
		if _, err := os.Stat(p.Dir()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("plane %d: its state folder is still there: %v", i, err)
		}
		if left := processesNaming(t, p.Dir()); len(left) > 0 {
			t.Errorf("plane %d: processes are left: %d", i, left)
		}
		if err := p.StartAPIServer(t.Context()); err == nil {
			t.Errorf("plane %d: an API server could be started after Stop", i)
		}
		if i == 0 {
			if code, _ := get(t, planes[1].AdminClient(), planes[1].URL()+"/version"); code != http.StatusOK {
				t.Errorf("the other plane answers %d", code)
			}
		}
	}
}

// processesNaming finds processes whose arguments name the folder, as those of every server do.
func processesNaming(t *testing.T, dir string) (pids []int) {
	t.Helper()
	files, err := os.ReadDir("/proc")
	must.Do(t, err)
	for _, f := range files {
		pid, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		// A process that has just gone has no such file, a dead one an empty one.
		if args, err := os.ReadFile("/proc/" + f.Name() + "/cmdline"); err == nil && bytes.Contains(args, []byte(dir)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestAServerThatDoesNotComeUpIsQuotedAndNothingIsLeft(t *testing.T) {
	dir := t.TempDir() + "/plane"
	_, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Fatalf("the error does not quote the log: %v", err)
	}
	if left := processesNaming(t, dir); len(left) > 0 {
		t.Errorf("processes are left: %d", left)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state folder is left: %v", err)
	}
}

func TestTheAPIServerCanBeLeftOffAtFirst(t *testing.T) {
	p := start(t, controlplane.Options{APIServerOff: true, Keys: testpki.RSA, Anonymous: true,
		APIServerArgs: []string{"--goaway-chance=0.001"}})
	if _, err := p.AdminClient().Get(p.URL()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("before: %v, want connection refused", err)
	}
	must.Do(t, p.StartAPIServer(t.Context()))
	// Anonymous requests are let in, and stopped by RBAC.
	if code, answer := get(t, anonymous(p), p.URL()+"/api/v1/secrets"); code != http.StatusForbidden {
		t.Errorf("an anonymous request: %d %s, want 403", code, answer)
	}
}

func TestAKubeconfigWorksForAnyAddressOfTheServer(t *testing.T) {
	p := start(t, controlplane.Options{})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.URL(), "https://"))
	must.Do(t, err)
	for _, server := range []string{p.URL(), "https://localhost:" + port} {
		file, err := p.Kubeconfig(server, agentUser, agentGroup)
		must.Do(t, err)
		info, err := os.Stat(file)
		must.Do(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, want 0600", info.Mode().Perm())
		}
		who, err := p.Kubectl(t.Context(), "--kubeconfig", file, "auth", "whoami", "-o",
			"jsonpath={.status.userInfo.username} {.status.userInfo.groups[0]}")
		must.Do(t, err)
		if who != agentUser+" "+agentGroup {
			t.Errorf("the server sees %q", who)
		}
	}
}
