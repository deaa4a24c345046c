// SPDX-License-Identifier: Apache-2.0

//go:build real

package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
)

const (
	renewals = 200
	bound    = 10 * time.Minute
	bearer   = "token1.0123456789abcdef"
	csrPath  = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// makeToken makes the token bearer.
func makeToken(ctx context.Context, t *testing.T, p *controlplane.Plane) {
	t.Helper()
	id, secret, _ := strings.Cut(bearer, ".")
	_, err := p.MakeToken(ctx, controlplane.Token{ID: id, Secret: secret, Groups: csr.BootstrapGroup})
	must(t, err)
}

// plane is a control plane with the ControllerConfig and a token.
func plane(ctx context.Context, t *testing.T) (*controlplane.Plane, controllerconfig.Store) {
	t.Helper()
	p, err := controlplane.Start(ctx, controlplane.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, p.Stop()) })
	must(t, p.InstallCRD(ctx))
	must(t, p.AllowAgents(ctx))
	must(t, p.AllowBootstrap(ctx))
	makeToken(ctx, t, p)
	store := controllerconfig.Store{API: controllerconfig.Small, URL: p.URL(), Client: p.AdminClient()}
	_, err = store.Create(ctx, controllerconfig.Spec{})
	must(t, err)
	return p, store
}

type csrList struct {
	Items []map[string]any `json:"items"`
}

func list(ctx context.Context, p *controlplane.Plane) (l csrList, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL()+csrPath, nil)
	if err != nil {
		return l, err
	}
	res, err := p.AdminClient().Do(req)
	if err != nil {
		return l, err
	}
	defer res.Body.Close()
	return l, json.NewDecoder(res.Body).Decode(&l)
}

// approver approves everything until ctx ends.
func approver(ctx context.Context, t *testing.T, p *controlplane.Plane) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l, err := list(ctx, p)
		if err != nil {
			continue
		}
		for _, r := range l.Items {
			status, _ := r["status"].(map[string]any)
			if status["conditions"] != nil {
				continue
			}
			r["apiVersion"], r["kind"] = "certificates.k8s.io/v1", "CertificateSigningRequest"
			r["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Approved", "status": "True",
				"reason": "Test", "message": "test"}}}
			body, _ := json.Marshal(r)
			name := r["metadata"].(map[string]any)["name"].(string)
			req, _ := http.NewRequestWithContext(ctx, http.MethodPut, p.URL()+csrPath+"/"+name+"/approval",
				bytes.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			if res, err := p.AdminClient().Do(req); err == nil {
				answer, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode >= 300 && res.StatusCode != http.StatusConflict {
					t.Errorf("approving: %s %.300s", res.Status, answer)
				}
			}
		}
	}
}

// counting is a trail that counts.
type counting struct{ renewed, others atomic.Int64 }

func (c *counting) Record(r audit.Record) {
	if r.Kind == audit.IdentityRenewed {
		c.renewed.Add(1)
	} else if r.Kind.Priority < 5 {
		c.others.Add(1)
	}
}

func Test200RenewalsUnderAWatchLoseNoEventAndLeaveNoRequestBehind(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	p, store := plane(ctx, t)
	go approver(ctx, t, p)
	trail, w := &counting{}, newEnv(t) // of which only the state directory is used
	issued := 0
	m := New(Options{Node: "worker-1", Dir: w, Trail: trail, Lifetime: time.Hour,
		Credential: secret.New(kubeconfigs.Token(p.URL(), p.CA().PEM(), bearer)),
		Times:      Times{Retire: 100 * time.Millisecond},
		renewal: func(g *generation) time.Time {
			if issued++; issued > renewals {
				return g.leaf.NotAfter
			}
			return g.Received
		}})
	kept := make(chan struct{})
	go func() { m.Run(ctx); close(kept) }()
	for s := range m.Readings() {
		if s.Usable {
			break
		}
	}
	o := watch.Options{Client: m.HTTPClient(), Server: m.Server(), Reopen: m.Rotated(),
		Group: controllerconfig.Small.Group, Version: controllerconfig.Small.Version,
		Resource: "controllerconfigs", Name: controllerconfig.Name, RetryJitter: time.Second}
	watcher := watch.New(o)
	go watcher.Run(ctx)
	changes, slowest := 0, time.Duration(0)
	for trail.renewed.Load() < renewals {
		v, err := store.Annotate(ctx, "example.org/change", fmt.Sprint(changes))
		must(t, err)
		sent := time.Now()
		awaitVersion(ctx, t, watcher, v)
		changes, slowest = changes+1, max(slowest, time.Since(sent))
	}
	t.Logf("%d renewals, %d changes seen meanwhile, the slowest after %v", trail.renewed.Load(), changes, slowest)
	if slowest > 5*time.Second || changes < renewals/4 || trail.others.Load() > 0 {
		t.Errorf("%d changes, the slowest after %v, %d records of trouble", changes, slowest, trail.others.Load())
	}
	l, err := list(ctx, p)
	must(t, err)
	if len(l.Items) != renewals+1 {
		t.Errorf("%d requests are in the cluster, want the %d that were issued", len(l.Items), renewals+1)
	}
	cancel()
	<-kept
	if _, ok := w.dir[pendingFile]; ok {
		t.Error("a pending key is left")
	}
}

// awaitVersion reads until the ControllerConfig has this version. Any state but following is a loss.
func awaitVersion(ctx context.Context, t *testing.T, w *watch.Watcher, version string) {
	t.Helper()
	for {
		select {
		case <-ctx.Done():
			t.Fatal("the version was not seen in time")
		case r := <-w.Readings():
			if r.Object != nil && r.State != watch.Following {
				t.Errorf("the watch is %s: %s", r.State, strings.TrimSpace(r.Reason))
			}
			if r.Object != nil && r.Object.ResourceVersion == version {
				return
			}
		}
	}
}
