// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// changer is a signer in memory: it renews whatever is asked for, one pair at a time.
type changer struct {
	ca      *testpki.Authority
	pairs   []pair.Facts
	keys    map[string]testpki.Pair
	before  pair.Facts
	waiting string
	blocked string
	// noBetter has it refuse to restore; gone answers no question, counted from the first.
	noBetter bool
	gone     int
	// comesBack says whether who is ended is started again.
	comesBack bool
	later     []func() // happen when somebody looks
	// refuses is why no certificate is issued.
	refuses error
	did     []string
}

func newChanger(names ...string) *changer {
	s := &changer{ca: testpki.New("ca", testpki.ECDSA), keys: map[string]testpki.Pair{}}
	for _, name := range names {
		s.pairs = append(s.pairs, s.fresh(name))
	}
	return s
}

// fresh is a new pair, which is due for the policy of these tests.
func (s *changer) fresh(name string) pair.Facts {
	p := s.ca.Client(name)
	leaf, err := pair.Certificate(p.Cert)
	if err != nil {
		panic(err)
	}
	s.keys[name] = p
	return pair.Facts{Pair: pair.Pair{Name: name, Role: pair.Client}, Leaf: pair.Describe(leaf), Chain: [][]byte{leaf.Raw},
		CA: &pair.CA{KeyHere: true, NotAfter: leaf.NotAfter.Add(time.Hour)}}
}

func (s *changer) at(name string) *pair.Facts {
	return &s.pairs[slices.IndexFunc(s.pairs, func(f pair.Facts) bool { return f.Name == name })]
}

func (s *changer) do(verb string, q signer.Change) error {
	s.did = append(s.did, verb+" "+q.Pair)
	if s.gone > 0 {
		if s.gone--; s.gone == 0 {
			return &signer.Error{Reason: signer.Unavailable, Detail: "it is gone"}
		}
	}
	if f := s.at(q.Pair); f.Leaf.SHA256 != q.Leaf || (verb == "renew") != (s.waiting == "") {
		return &signer.Error{Reason: signer.Refused, Detail: "another one"}
	}
	return nil
}

func (s *changer) Inspect(context.Context) (inspect.Inspection, error) {
	for _, happens := range s.later {
		happens()
	}
	return inspect.Inspection{Pairs: slices.Clone(s.pairs), Waiting: s.waiting, Blocked: s.blocked}, nil
}

func (s *changer) Renew(_ context.Context, q signer.Change) (pair.Facts, error) {
	if err := s.do("renew", q); err != nil {
		return pair.Facts{}, err
	}
	f := s.at(q.Pair)
	s.before, s.waiting = *f, q.Pair
	next := s.fresh(q.Pair)
	next.Addresses, next.Targets = f.Addresses, f.Targets
	next.AtStart, next.Users, next.Changed = f.AtStart, f.Users, f.Changed
	*f = next
	return *f, nil
}

func (s *changer) Keep(_ context.Context, q signer.Change) (pair.Facts, error) {
	if err := s.do("keep", q); err != nil {
		return pair.Facts{}, err
	}
	s.waiting = ""
	return *s.at(q.Pair), nil
}

func (s *changer) Restore(_ context.Context, q signer.Change) (pair.Facts, error) {
	if err := s.do("restore", q); err != nil {
		return pair.Facts{}, err
	}
	if s.noBetter {
		return pair.Facts{}, &signer.Error{Reason: signer.Refused, Detail: "no better"}
	}
	s.waiting = ""
	*s.at(q.Pair) = s.before
	return s.before, nil
}

// Restart has the pair read anew by a process that starts a second later.
func (s *changer) Restart(_ context.Context, q signer.Change) (pair.Facts, error) {
	f := s.at(q.Pair)
	s.did = append(s.did, "restart "+q.Pair)
	back, users := time.Now().Add(time.Second), slices.Clone(f.Users)
	f.Users = nil
	if s.comesBack {
		s.later = append(s.later, func() {
			if f := s.at(q.Pair); !time.Now().Before(back) && f.Users == nil {
				users[0].Started = f.Changed.Add(time.Second)
				f.Users = users
			}
		})
	}
	return *f, nil
}

// Request asks with a text that says for which certificate it is.
func (s *changer) Request(_ context.Context, q signer.Change) ([]byte, error) {
	if s.at(q.Pair).Leaf.SHA256 != q.Leaf {
		return nil, &signer.Error{Reason: signer.Refused, Detail: "another one"}
	}
	return []byte("after " + q.Leaf), nil
}

// Issue answers such a text with another, unless it refuses.
func (s *changer) Issue(_ context.Context, q signer.Issue) ([]byte, error) {
	s.did = append(s.did, "issue")
	if s.refuses != nil {
		return nil, s.refuses
	}
	return append([]byte("follows "), q.Request...), nil
}

// Install takes such an answer.
func (s *changer) Install(ctx context.Context, q signer.Install) (pair.Facts, error) {
	if string(q.Certificate) != "follows after "+s.at(q.Pair).Leaf.SHA256 {
		s.did = append(s.did, "refuse "+q.Pair)
		return pair.Facts{}, &signer.Error{Reason: signer.Refused, Detail: "not the successor"}
	}
	s.did = append(s.did, "install "+q.Pair)
	was := len(s.did)
	f, err := s.Renew(ctx, q.Change)
	s.did = s.did[:was]
	return f, err
}

func (s *changer) Abandon(context.Context, string) error { s.waiting = ""; return nil }

func (s *changer) Key(_ context.Context, name string, _ crypto.PublicKey) crypto.Signer {
	return s.keys[name].TLS().PrivateKey.(crypto.Signer)
}

// onDemand asks servers in memory: each accepts what get says.
func onDemand(s *changer, get func(t pair.Target) (int, error)) (o *OnDemand, said *[]Outcome) {
	said = &[]Outcome{}
	return &OnDemand{Signer: s, Clock: clock.System{}, Timeout: time.Minute, Pause: time.Second,
		Policy: pair.Policy{Mode: pair.ModeManual, RenewBefore: 1000 * time.Hour, WarnBefore: time.Second},
		Leaf: func(_ context.Context, address string) ([]byte, error) {
			return s.at(address).Chain[0], nil
		},
		Get: func(_ context.Context, t pair.Target, c tls.Certificate) (int, error) { return get(t) },
		Say: func(o Outcome) { *said = append(*said, o) }}, said
}

func yes(pair.Target) (int, error) { return http.StatusForbidden, nil }

var remote = &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}

func TestPairsAreRenewedOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newChanger("a", "b", "c")
		s.at("a").Targets = []pair.Target{{Address: "etcd:1"}}
		s.at("b").Addresses = []string{"b"}
		o, said := onDemand(s, yes)
		for i := range s.pairs { // less than a third of the life is left
			s.pairs[i].Leaf.NotBefore = time.Now().Add(-70 * time.Hour)
		}
		if err := o.Run(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if want := "renew a keep a renew b keep b renew c keep c"; strings.Join(s.did, " ") != want {
			t.Errorf("it did %q, want %q", s.did, want)
		}
		if len(*said) != 3 || (*said)[2].Result != Renewed || (*said)[0].Why != "" || !strings.Contains((*said)[2].Why, "no server") {
			t.Errorf("it said %+v", *said)
		}
	})
}

func TestWhatIsServedAndThatNoPeerTakesIsRestored(t *testing.T) {
	for name, c := range map[string]struct {
		get  func(pair.Target) (int, error)
		want string
	}{
		"each closes the connection": {func(pair.Target) (int, error) { return 0, io.EOF }, "renew a restore a"},
		"one is down": {func(t pair.Target) (int, error) {
			if t.Address == "b:2" {
				return 0, io.EOF
			}
			return 200, nil
		}, "renew a keep a"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newChanger("a").due("a")
			s.at("a").Addresses, s.at("a").Targets = []string{"a"}, []pair.Target{{Address: "b:2"}, {Address: "c:2"}}
			o, _ := onDemand(s, c.get)
			err := o.Run(t.Context(), nil)
			if strings.Join(s.did, " ") != c.want || (err != nil) != strings.Contains(c.want, "restore") {
				t.Errorf("%s: it did %q, %v", name, s.did, err)
			}
		})
	}
}

func TestWhatIsNotProvenIsRestoredAndEndsIt(t *testing.T) {
	for name, get := range map[string]func(pair.Target) (int, error){
		"a server says 401":             func(pair.Target) (int, error) { return http.StatusUnauthorized, nil },
		"a server breaks off":           func(pair.Target) (int, error) { return 0, fmt.Errorf("get: %w", remote) },
		"nobody answers":                func(pair.Target) (int, error) { return 0, errors.New("connection refused") },
		"one of two refuses it, always": func(t pair.Target) (int, error) { return map[string]int{"e:1": 200, "e:2": 401}[t.Address], nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newChanger("a", "b")
			s.at("a").Targets = []pair.Target{{Address: "e:1"}, {Address: "e:2"}}
			o, said := onDemand(s, get)
			o.Force = true
			begin := time.Now()
			err := o.Run(t.Context(), nil)
			if !errors.Is(err, ErrUnproven) || !strings.Contains(err.Error(), "e:2") || time.Since(begin) < o.Timeout {
				t.Errorf("%s: %v after %v", name, err, time.Since(begin))
			}
			if want := "renew a restore a"; strings.Join(s.did, " ") != want || s.at("a").Leaf != s.before.Leaf {
				t.Errorf("%s: it did %q, want %q", name, s.did, want)
			}
			if len(*said) != 1 || (*said)[0].Result != Restored {
				t.Errorf("%s: it said %+v", name, *said)
			}
		})
	}
}

func TestAServerMayTakeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newChanger("a")
		s.at("a").Targets = []pair.Target{{Address: "e:1"}, {Address: "e:2"}}
		asked := 0
		o, said := onDemand(s, func(t pair.Target) (int, error) {
			if asked++; asked < 20 {
				return 401, nil
			}
			if t.Address == "e:2" {
				return 0, errors.New("connection refused")
			}
			return 200, nil
		})
		if err := o.Run(t.Context(), []string{"a"}); err != nil || (*said)[0].Result != Renewed ||
			!strings.Contains((*said)[0].Why, "e:2: connection refused") {
			t.Errorf("%v, it said %+v", err, *said)
		}
	})
}

func TestWhatHadEndedIsKeptAtOnceThoughNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newChanger("a", "b")
		for _, name := range []string{"a", "b"} {
			s.at(name).Leaf.NotAfter = time.Now().Add(-time.Hour)
		}
		begin := time.Now()
		defer func() {
			if took := time.Since(begin); took > 0 {
				t.Errorf("it waited for %v", took)
			}
		}()
		s.noBetter = true
		s.at("a").Targets = []pair.Target{{Address: "e:1"}}
		o, said := onDemand(s, func(pair.Target) (int, error) { return 0, errors.New("connection refused") })
		o.Force = true
		if err := o.Run(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if want := "renew a restore a keep a renew b keep b"; strings.Join(s.did, " ") != want {
			t.Errorf("it did %q, want %q", s.did, want)
		}
		if (*said)[0].Result != Unproven || !strings.Contains((*said)[0].Why, "refused") {
			t.Errorf("it said %+v", *said)
		}
	})
}

func TestItGoesOnWhereItWasLeft(t *testing.T) {
	for gone, want := range map[int]string{1: "renew a renew a keep a", 2: "renew a keep a keep a"} {
		synctest.Test(t, func(t *testing.T) {
			s := newChanger("a")
			s.gone = gone
			o, _ := onDemand(s, yes)
			o.Force = true
			if err := o.Run(t.Context(), nil); err == nil {
				t.Error("a signer that is gone is no error")
			}
			if err := o.Run(t.Context(), nil); err != nil || s.waiting != "" || strings.Join(s.did, " ") != want {
				t.Errorf("%v, waiting %q, it did %q, want %q", err, s.waiting, s.did, want)
			}
		})
	}
	s := newChanger("a")
	s.waiting, s.blocked = "a", "a.crt is neither old nor new"
	o, _ := onDemand(s, yes)
	if err := o.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), s.blocked) || len(s.did) > 0 {
		t.Errorf("a pair that is blocked: %v, it did %q", err, s.did)
	}
}

func TestASomebodyWhoChangesItMeanwhileEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newChanger("a")
		s.at("a").Targets = []pair.Target{{Address: "e:1"}}
		o, _ := onDemand(s, func(pair.Target) (int, error) {
			if s.waiting != "" {
				targets := s.at("a").Targets
				*s.at("a") = s.fresh("a")
				s.at("a").Targets = targets
			}
			return 401, nil
		})
		o.Force = true
		if err := o.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "somebody else") || s.waiting != "a" {
			t.Errorf("%v, waiting %q", err, s.waiting)
		}
	})
}

func TestUsersAreRestartedOneAfterTheOther(t *testing.T) {
	for _, back := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newChanger("a", "b", "c")
			s.comesBack = back
			for _, name := range []string{"a", "b"} {
				f := s.at(name)
				f.AtStart, f.Changed, f.Users = true, time.Now(), []pair.Component{{Program: "p", Started: time.Now().Add(-time.Hour)}}
			}
			o, said := onDemand(s, yes)
			err := o.Restart(t.Context())
			if did := strings.Join(s.did, ", "); back && (err != nil || did != "restart a, restart b" || len(*said) != 2) {
				t.Errorf("%v, it did %q, said %+v", err, did, *said)
			} else if !back && (err == nil || did != "restart a" || !strings.Contains(err.Error(), "not back after 1m0s")) {
				t.Errorf("who does not come back: %v, it did %q", err, did)
			}
		})
	}
}

func TestANameThatIsNoneEndsItBeforeItBegins(t *testing.T) {
	s := newChanger("a", "b")
	s.at("b").CA = nil
	o, _ := onDemand(s, yes)
	for name, want := range map[string]string{"x": "there are a, b", "b": "no CA on this host"} {
		if err := o.Run(t.Context(), []string{"a", name}); err == nil || !strings.Contains(err.Error(), want) || len(s.did) > 0 {
			t.Errorf("%s: %v, it did %q", name, err, s.did)
		}
	}
}

func TestAServerThatVerifiesClientsIsAsked(t *testing.T) {
	ca, foreign := testpki.New("ca", testpki.ECDSA), testpki.New("foreign", testpki.ECDSA)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	var user string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		user = r.Header.Get("X-Remote-User")
	}))
	server.TLS = &tls.Config{ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	defer server.Close()
	target := pair.Target{Address: server.Listener.Addr().String(), Path: "/health", Proxied: true}
	if status, err := Get(t.Context(), target, ca.Client("us").TLS()); err != nil || status != 200 || user == "" {
		t.Errorf("a client of the CA: %d, %v, proxy for %q", status, err, user)
	}
	_, err := Get(t.Context(), target, foreign.Client("us").TLS())
	if e, ok := errors.AsType[*net.OpError](err); !ok || e.Op != "remote error" {
		t.Errorf("a client of another CA: %v", err)
	}
	server.Close()
	_, err = Get(t.Context(), target, ca.Client("us").TLS())
	if e, ok := errors.AsType[*net.OpError](err); err == nil || ok && e.Op == "remote error" {
		t.Errorf("no server: %v", err)
	}
}
