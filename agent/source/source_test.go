// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// timeout bounds every wait. It is no measure of speed.
const timeout = 30 * time.Second

// both has both sources.
var both = config.Settings{
	ControllerConfig: config.ControllerConfig{Group: "g", Version: "v1", Resource: "objects", Name: "o"},
	ConfigMap:        config.ConfigMap{Namespace: "n", Name: "c", Key: "k"},
	Policy:           unitplan.Policy{Policy: plan.Policy{Files: []plan.FileSpec{{Field: plan.RootCAData}}}},
}

func TestANewIdentityReopensBothWatches(t *testing.T) {
	opened := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		opened <- r.URL.Path
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	wantOpened := func() {
		t.Helper()
		have := map[string]bool{}
		for range 2 {
			select {
			case path := <-opened:
				have[path] = true
			case <-time.After(timeout):
			}
		}
		want := []string{"/api/v1/namespaces/n/configmaps", "/apis/g/v1/objects"}
		if got := slices.Sorted(maps.Keys(have)); !slices.Equal(got, want) {
			t.Fatalf("opened are %v, want %v", got, want)
		}
	}
	reopen := make(chan struct{})
	w := New(both, zap.NewNop()).watches(watch.Options{Client: server.Client(), Server: base, Reopen: reopen})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	defer running.Wait()
	defer cancel()
	wantOpened()
	reopen <- struct{}{}
	wantOpened()
}

func TestAReadingThatNobodyTookIsReplacedAndWhatItDesiredIsNotLost(t *testing.T) {
	s := New(both, zap.NewNop())
	first, second := &plan.Desired{}, &plan.Desired{}
	s.offer(desired.Reading{State: "following", Desired: first})
	s.offer(desired.Reading{State: "unreachable"})
	if r := <-s.Readings(); r.State != "unreachable" || r.Desired != first {
		t.Errorf("it reads %+v", r)
	}
	s.offer(desired.Reading{State: "following", Desired: first})
	s.offer(desired.Reading{State: "following", Desired: second})
	if r := <-s.Readings(); r.Desired != second {
		t.Error("it reads what was desired before")
	}
}

func TestWhatOnlyOneSourceAsksForIsPartial(t *testing.T) {
	s := New(both, zap.NewNop())
	r := s.update(&s.configMap, watch.Reading{State: watch.Following, Object: &watch.Object{}})
	if r.State != report.SourceState(watch.Connecting) || r.ConfigMap == nil || r.Desired == nil || !r.Desired.Partial {
		t.Errorf("with the ConfigMap alone it reads %+v", r)
	}
	r = s.update(&s.object, watch.Reading{State: watch.Following, Object: &watch.Object{}})
	if r.State != report.SourceState(watch.Following) || r.Desired == nil || r.Desired.Partial {
		t.Errorf("with both it reads %+v", r)
	}
	if r = s.update(&s.object, watch.Reading{State: watch.Unreachable}); r.Desired != nil {
		t.Error("what was read before is desired anew")
	}
}

// fakeProver is an identity.
type fakeProver struct{ trusts, asked string }

func (a *fakeProver) Prove(_ context.Context, bundle []byte) (string, error) {
	a.asked = string(bundle)
	return "why", nil
}

func TestWhoeverSpeaksTrustsWhatTheLoopSaid(t *testing.T) {
	ca := testpki.New("ca", testpki.ECDSA).PEM()
	certs := pki.Read(ca).Certs
	s := New(both, zap.NewNop())
	if _, err := s.Trust().Prove(t.Context(), certs); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("without an identity: %v", err)
	}
	s.Trust().Use(certs)
	first, second := &fakeProver{}, &fakeProver{}
	for _, a := range []*fakeProver{first, second} {
		s.trust.use(a.Prove, func(bundle []byte) { a.trusts = string(bundle) })
		if a.trusts != string(ca) {
			t.Errorf("it trusts %q", a.trusts)
		}
	}
	why, err := s.Trust().Prove(t.Context(), certs)
	if why != "why" || err != nil || second.asked != string(ca) || first.asked != "" {
		t.Errorf("asked were %q and %q: %q, %v", first.asked, second.asked, why, err)
	}
	s.trust.use(first.Prove, nil) // something else maintains its trust
	s.Trust().Use(nil)
	if first.trusts != string(ca) || second.trusts != string(ca) {
		t.Error("it was told what to trust")
	}
}
