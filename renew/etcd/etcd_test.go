// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd/etcdtest"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd/wire"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// start is a server and a client of it.
func start(t *testing.T) (*etcdtest.Server, *etcd.Client) {
	t.Helper()
	s, stop := etcdtest.Start()
	c, err := etcd.New(s.URL, s.TLS, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); stop() })
	return s, c
}

func TestAMemberSaysWhoTheMembersAreAndHowItFares(t *testing.T) {
	s, c := start(t)
	s.Members = []etcd.Member{
		{ID: 1 << 63, Name: "a", PeerURLs: []string{"https://a:2380"}, ClientURLs: []string{"https://a:2379", "https://b:2379"}},
		{ID: 7, Learner: true},
	}
	s.Status = etcd.Status{Cluster: 3, Member: 1 << 63, Version: "3.6.8", DBSize: 20480, Leader: 7, RaftTerm: 4,
		AppliedIndex: 1 << 40, Errors: []string{"NOSPACE"}, Learner: true}
	s.Alarms = []etcd.Alarm{{Member: 7, Kind: etcd.NoSpace}, {Member: 8, Kind: etcd.Corrupt}}
	members, err := c.Members(t.Context())
	if err != nil || !reflect.DeepEqual(members, s.Members) {
		t.Errorf("%+v, %v", members, err)
	}
	status, err := c.Status(t.Context())
	if err != nil || !reflect.DeepEqual(status, s.Status) {
		t.Errorf("%+v, %v", status, err)
	}
	alarms, err := c.Alarms(t.Context())
	if err != nil || !reflect.DeepEqual(alarms, s.Alarms) {
		t.Errorf("%+v, %v", alarms, err)
	}
}

func TestALeaseTakesItsKeyAlong(t *testing.T) {
	s, c := start(t)
	id, err := c.Grant(t.Context(), 60*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, c, etcd.Change{Key: "a", Value: []byte("1"), Lease: id})
	s.Store.Pass(59 * time.Second)
	if ttl, err := c.KeepAlive(t.Context(), id); ttl != 60*time.Second || err != nil {
		t.Errorf("kept for %v, %v", ttl, err)
	}
	s.Store.Pass(59 * time.Second)
	if kv, err := c.Get(t.Context(), "a"); err != nil || kv == nil || kv.Lease != id {
		t.Errorf("%+v, %v", kv, err)
	}
	s.Store.Pass(time.Second)
	if kv, err := c.Get(t.Context(), "a"); err != nil || kv != nil {
		t.Errorf("%+v, %v", kv, err)
	}
	if ttl, err := c.KeepAlive(t.Context(), id); ttl != 0 || err != nil {
		t.Errorf("a lease that ended was kept for %v, %v", ttl, err)
	}
	status, ok := errors.AsType[*etcd.StatusError](c.Revoke(t.Context(), id))
	if !ok || status.Code != etcd.NotFound {
		t.Errorf("revoked again: %v", status)
	}
}

func commit(t *testing.T, c *etcd.Client, ch etcd.Change) etcd.Result {
	t.Helper()
	r, err := c.Commit(t.Context(), ch)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAKeyChangesOnlyIfItIsAsExpected(t *testing.T) {
	_, c := start(t)
	made := commit(t, c, etcd.Change{Key: "a", Value: []byte("1")})
	if !made.Done || made.Current != nil {
		t.Fatalf("made: %+v", made)
	}
	for name, ch := range map[string]etcd.Change{
		"made again":               {Key: "a", Value: []byte("2")},
		"from another revision":    {Key: "a", Value: []byte("2"), From: made.Revision - 1},
		"deleted from another one": {Key: "a", Delete: true, From: made.Revision + 1},
	} {
		r := commit(t, c, ch)
		want := &etcd.KeyValue{Key: "a", Value: []byte("1"), CreateRevision: made.Revision, ModRevision: made.Revision}
		if r.Done || !reflect.DeepEqual(r.Current, want) {
			t.Errorf("%s: %+v of %+v", name, r, r.Current)
		}
	}
	put := commit(t, c, etcd.Change{Key: "a", Value: []byte("3"), From: made.Revision})
	if !put.Done || put.Revision <= made.Revision {
		t.Errorf("put: %+v", put)
	}
	gone := commit(t, c, etcd.Change{Key: "a", Delete: true, From: put.Revision,
		Record: &etcd.KeyValue{Key: "b", Value: []byte("why")}})
	if !gone.Done {
		t.Errorf("deleted: %+v", gone)
	}
	if kv, err := c.Get(t.Context(), "b"); err != nil || kv == nil || string(kv.Value) != "why" {
		t.Errorf("record: %+v, %v", kv, err)
	}
	if r := commit(t, c, etcd.Change{Key: "a", Value: []byte("4"), From: put.Revision}); r.Done || r.Current != nil {
		t.Errorf("a key that is gone was put: %+v", r)
	}
}

// TestAKeyLeavesItsLease is what lets a claim become work that no time ends.
func TestAKeyLeavesItsLease(t *testing.T) {
	s, c := start(t)
	id, err := c.Grant(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	r := commit(t, c, etcd.Change{Key: "a", Lease: id})
	commit(t, c, etcd.Change{Key: "a", From: r.Revision})
	s.Store.Pass(time.Minute)
	if kv, err := c.Get(t.Context(), "a"); err != nil || kv == nil || kv.Lease != 0 {
		t.Errorf("%+v, %v", kv, err)
	}
}

// remoteKey signs and tells nobody its key, as one behind a socket does.
type remoteKey struct{ key crypto.Signer }

func (r remoteKey) Public() crypto.PublicKey { return r.key.Public() }

func (r remoteKey) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return r.key.Sign(rand, digest, opts)
}

func TestTheKeyMayBeElsewhere(t *testing.T) {
	ca := testpki.New("etcd-ca", testpki.ECDSA)
	pair := ca.Client("renewer").TLS()
	pair.PrivateKey = remoteKey{pair.PrivateKey.(crypto.Signer)}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	h := httptest.NewUnstartedServer(&etcdtest.Server{})
	h.EnableHTTP2, h.TLS = true, &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	h.StartTLS()
	defer h.Close()
	config := h.Client().Transport.(*http.Transport).TLSClientConfig
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	c, err := etcd.New(h.URL, config, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Members(t.Context()); err != nil {
		t.Error(err)
	}
	config.GetClientCertificate = nil
	c, err = etcd.New(h.URL, config, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Members(t.Context()); err == nil || errors.Is(err, etcd.ErrAnswer) {
		t.Errorf("without a pair: %v", err)
	}
}

func TestWhatTheServerRefusesHasItsCode(t *testing.T) {
	s, c := start(t)
	s.Fail(etcd.PermissionDenied, "etcdserver: 100%25 \x1b[2J denied")
	_, err := c.Get(t.Context(), "a")
	status, ok := errors.AsType[*etcd.StatusError](err)
	if !ok || status.Code != etcd.PermissionDenied || errors.Is(err, etcd.ErrAnswer) {
		t.Fatalf("error %v", err)
	}
	if want := "asking etcd at " + s.URL + " for KV/Range: permission denied: "; !strings.HasPrefix(err.Error(), want) ||
		strings.ContainsRune(err.Error(), '\x1b') {
		t.Errorf("%q", err)
	}
}

func TestACodeHasAName(t *testing.T) {
	for code, want := range map[etcd.Code]string{etcd.Unavailable: "unavailable", 99: "gRPC status 99"} {
		if code.String() != want {
			t.Errorf("%d is %q, want %q", uint32(code), code, want)
		}
	}
}

func TestAServerThatSaysNothingMeetsTheDeadline(t *testing.T) {
	s, stop := etcdtest.Start()
	defer stop()
	for name, f := range map[string]http.HandlerFunc{
		"no header": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"no trailer": func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		s.Answer(f)
		c, err := etcd.New(s.URL, s.TLS, 200*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Members(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}

func TestACallAfterAnotherHasTheSameConnectionUnlessOneWasLost(t *testing.T) {
	s, c := start(t)
	var from []string
	note := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { from = append(from, r.RemoteAddr); next(w, r) }
	}
	fine := note(func(w http.ResponseWriter, r *http.Request) { (&etcdtest.Server{}).ServeHTTP(w, r) })
	lost := note(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	cut := note(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	for _, f := range []http.HandlerFunc{fine, fine, lost, cut, fine} {
		s.Answer(f)
		_, _ = c.Members(t.Context())
	}
	c.Close()
	_, _ = c.Members(t.Context())
	same := []bool{true, true, false, false, false}
	for i := range same {
		if len(from) != 6 || same[i] != (from[i] == from[i+1]) {
			t.Fatalf("connections from %q", from)
		}
	}
}

func TestACallWantsNoCompressionAndSaysHowLongItWaits(t *testing.T) {
	s, c := start(t)
	s.Answer(func(w http.ResponseWriter, r *http.Request) {
		if h := r.Header; h.Get("Accept-Encoding") != "" || h.Get("Grpc-Timeout") != "10000m" || r.Method != http.MethodPost {
			t.Errorf("%s %v", r.Method, h)
		}
	})
	_, _ = c.Members(t.Context())
}

func TestATimeToLiveIsNeverNegative(t *testing.T) {
	s, c := start(t)
	for seconds, want := range map[int64]time.Duration{60: time.Minute, -1: 0, 1 << 62: 9_000_000_000 * time.Second} {
		s.Answer(fine(string(wire.AppendNumber(nil, 3, seconds))))
		if ttl, err := c.KeepAlive(t.Context(), 1); ttl != want || err != nil {
			t.Errorf("%d: %v, %v", seconds, ttl, err)
		}
	}
}
func TestAnEndpointIsHostAndPort(t *testing.T) {
	for endpoint, good := range map[string]bool{
		"https://127.0.0.1:2379": true, "https://[::1]:2379/": true, "https://etcd.example:2379": true,
		"http://127.0.0.1:2379": false, "https://127.0.0.1": false, "127.0.0.1:2379": false, "https://a:1/x": false,
		"https://u@a:1": false, "https://a:1?": false, "https://a:1#x": false, "unix://a:1": false, "": false, "https://:1x": false,
	} {
		if _, err := etcd.New(endpoint, &tls.Config{}, time.Second); (err == nil) != good {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}
