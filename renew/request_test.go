// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd/etcdtest"
	"github.com/node-cert-agent/node-cert-agent/renew/lock"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

const forEtcd = "apiserver-etcd-client"

// asking is a control-plane host whose etcd is elsewhere: its pair is due, and the CA's key is on another host.
func asking(store *etcdtest.Store) (*Unattended, *changer) {
	s := newChanger(forEtcd, "other").due(forEtcd)
	s.at(forEtcd).CA.KeyHere = false
	s.at(forEtcd).Targets = []pair.Target{{Address: "etcd:1"}}
	u := unattended("control", s, store, yes)
	u.Policy.ThroughEtcd = true
	return u, s
}

// answering is a host of that etcd.
func answering(host string, store *etcdtest.Store) (*Unattended, *changer) {
	s := newChanger("etcd-server")
	f := s.at("etcd-server")
	f.Role, f.Users = pair.Server, []pair.Component{{Program: pair.Etcd}}
	u := unattended(host, s, store, yes)
	u.Policy.ThroughEtcd = true
	return u, s
}

func take(t *testing.T, u *Unattended, wantBlocked string) {
	t.Helper()
	blocked, err := u.Turn(t.Context())
	if err != nil || !strings.Contains(blocked, wantBlocked) || (blocked == "") != (wantBlocked == "") {
		t.Fatalf("blocked %q, want %q; %v", blocked, wantBlocked, err)
	}
}

func value(t *testing.T, store *etcdtest.Store, key string) string {
	t.Helper()
	kv, err := store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if kv == nil {
		return ""
	}
	return string(kv.Value)
}

func TestAHostWithTheCAsKeyIsAskedAndItsAnswerIsProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &etcdtest.Store{}
		control, s := asking(store)
		member, m := answering("member", store)
		take(t, control, "no host with the CA's key has answered yet")
		request := value(t, store, requestPrefix+"control")
		if !strings.HasPrefix(request, "after ") || held(t, store) != nil || len(s.did) > 0 {
			t.Fatalf("asked %q, the lock is %v, it did %q", request, held(t, store), s.did)
		}
		take(t, control, "has answered yet")
		take(t, member, "")
		take(t, member, "")
		if strings.Join(m.did, " ") != "issue" || held(t, store) != nil {
			t.Fatalf("the member did %q", m.did)
		}
		during := ""
		get := control.Get
		control.Get = func(ctx context.Context, p pair.Target, c tls.Certificate) (int, error) {
			h := held(t, store)
			during = h.Host + " " + h.Pair
			return get(ctx, p, c)
		}
		take(t, control, "")
		if strings.Join(s.did, ", ") != "install apiserver-etcd-client, keep apiserver-etcd-client" || held(t, store) != nil ||
			during != "control apiserver-etcd-client" {
			t.Errorf("it did %q, under %q, the lock is %v", s.did, during, held(t, store))
		}
		for _, prefix := range []string{requestPrefix, answerPrefix} {
			if left := value(t, store, prefix+"control"); left != "" {
				t.Errorf("%s keeps %s", prefix, left)
			}
		}
		take(t, control, "")
		take(t, member, "")
		if len(s.did) != 2 || len(m.did) != 1 {
			t.Errorf("afterwards they did %q and %q", s.did, m.did)
		}
	})
}

func TestNobodyAsksOrAnswersWithoutBeingAllowedTo(t *testing.T) {
	store := &etcdtest.Store{}
	control, s := asking(store)
	control.Policy.ThroughEtcd = false
	take(t, control, "")
	if all, err := store.List(t.Context(), requestPrefix, 9); err != nil || len(all) > 0 || len(s.did) > 0 {
		t.Errorf("it asked %v, %v, did %q", all, err, s.did)
	}
	control.Policy.ThroughEtcd = true
	take(t, control, "answered yet")
	for name, change := range map[string]func(*Unattended, *pair.Facts){
		"the setting is off":     func(u *Unattended, _ *pair.Facts) { u.Policy.ThroughEtcd = false },
		"the key is elsewhere":   func(_ *Unattended, f *pair.Facts) { f.CA.KeyHere = false },
		"no member of etcd runs": func(_ *Unattended, f *pair.Facts) { f.Users = nil },
	} {
		u, m := answering("member", store)
		change(u, m.at("etcd-server"))
		take(t, u, "")
		if len(m.did) > 0 || value(t, store, answerPrefix+"control") != "" {
			t.Errorf("%s: it did %q", name, m.did)
		}
	}
}

func TestARefusalIsShownAndACertificateReplacesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &etcdtest.Store{}
		control, s := asking(store)
		first, one := answering("one", store)
		second, two := answering("two", store)
		one.refuses = &signer.Error{Reason: signer.Refused, Detail: "it is not \x1b[2J due"}
		two.refuses = &signer.Error{Reason: signer.Refused, Detail: "neither"}
		take(t, control, "answered yet")
		take(t, first, "")
		take(t, second, "")
		take(t, control, "apiserver-etcd-client: one refuses: it is not ")
		if b, _ := control.Turn(t.Context()); strings.Contains(b, "\x1b") || len(s.did) > 0 {
			t.Errorf("blocked %q, did %q", b, s.did)
		}
		two.refuses = &signer.Error{Reason: signer.Failed, Detail: "a full disk"}
		if _, err := second.Turn(t.Context()); err == nil || !strings.Contains(err.Error(), "a full disk") {
			t.Errorf("what failed: %v", err)
		}
		two.refuses = nil
		take(t, second, "")
		take(t, first, "") // its refusal does not come back
		take(t, control, "")
		if strings.Join(s.did, ", ") != "install apiserver-etcd-client, keep apiserver-etcd-client" {
			t.Errorf("it did %q", s.did)
		}
	})
}

func TestWhatIsNoAnswerIsNotTaken(t *testing.T) {
	store := &etcdtest.Store{}
	control, s := asking(store)
	take(t, control, "answered yet")
	request := value(t, store, requestPrefix+"control")
	good := response{Request: digest([]byte(request)), By: "x", Certificate: "follows " + request}
	put := func(text string) {
		t.Helper()
		was, err := store.Get(t.Context(), answerPrefix+"control")
		ch := etcd.Change{Key: answerPrefix + "control", Value: []byte(text)}
		if was != nil {
			ch.From = was.ModRevision
		}
		if r, commitErr := store.Commit(t.Context(), ch); err != nil || commitErr != nil || !r.Done {
			t.Fatal(err, commitErr, r)
		}
	}
	encode := func(change func(*response)) string {
		a := good
		change(&a)
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, text := range map[string]string{
		"no JSON":            "follows " + request,
		"to another request": encode(func(a *response) { a.Request = digest([]byte("x")) }),
		"neither":            encode(func(a *response) { a.Certificate = "" }),
		"both":               encode(func(a *response) { a.Refusal = "no" }),
		"very long":          encode(func(a *response) { a.By = strings.Repeat("x", 2*signer.MaxRequest) }),
	} {
		put(text)
		if blocked, err := control.Turn(t.Context()); err != nil || !strings.Contains(blocked, "answered yet") || len(s.did) > 0 {
			t.Errorf("%s: %q, %v, did %q", name, blocked, err, s.did)
		}
	}
	// What looks like one, and is not the successor, frees the lock, and makes room for another.
	put(encode(func(a *response) { a.Certificate = "forged" }))
	if _, err := control.Turn(t.Context()); err == nil || !strings.Contains(err.Error(), "not the successor") ||
		held(t, store) != nil || value(t, store, answerPrefix+"control") != "" {
		t.Errorf("forged: %v, the lock is %v", err, held(t, store))
	}
	take(t, control, "answered yet")
	if strings.Join(s.did, ", ") != "refuse apiserver-etcd-client" {
		t.Errorf("it did %q", s.did)
	}
}

func TestWhatNeedsNoOtherHostIsRenewedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &etcdtest.Store{}
		control, s := asking(store)
		s.due("other")
		take(t, control, "answered yet")
		if strings.Join(s.did, " ") != "renew other keep other" || held(t, store) != nil {
			t.Errorf("it did %q", s.did)
		}
	})
}

// unable is a signer that cannot ask.
type unable struct{ Changer }

func (unable) Request(context.Context, signer.Change) ([]byte, error) {
	return nil, &signer.Error{Reason: signer.Failed, Detail: "a full disk"}
}

func TestWhatCannotBeAskedForDelaysNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control, s := asking(&etcdtest.Store{})
		s.due("other")
		control.Signer = unable{control.Signer}
		take(t, control, "a full disk")
		if strings.Join(s.did, " ") != "renew other keep other" {
			t.Errorf("it did %q", s.did)
		}
	})
}

func TestAnAnswerThatIsNotProvenIsRestoredAndKeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &etcdtest.Store{}
		control, s := asking(store)
		member, _ := answering("member", store)
		take(t, control, "answered yet")
		take(t, member, "")
		control.Get = func(context.Context, pair.Target, tls.Certificate) (int, error) { return 0, remote }
		blocked, err := control.Turn(t.Context())
		if err != nil || !strings.Contains(blocked, "was restored") || held(t, store).Reason == "" {
			t.Errorf("%q, %v, the lock is %+v", blocked, err, held(t, store))
		}
		if got := strings.Join(s.did, ", "); got != "install apiserver-etcd-client, restore apiserver-etcd-client" {
			t.Errorf("it did %q", got)
		}
	})
}

func TestAnInstallWhoseEndIsUnknownGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &etcdtest.Store{}
		control, s := asking(store)
		member, _ := answering("member", store)
		take(t, control, "answered yet")
		take(t, member, "")
		s.gone = 1
		if _, err := control.Turn(t.Context()); err == nil || held(t, store) == nil || held(t, store).Phase != lock.Work {
			t.Fatalf("%v, the lock is %+v", err, held(t, store))
		}
		take(t, control, "")
		if !strings.HasSuffix(strings.Join(s.did, ", "), "install apiserver-etcd-client, keep apiserver-etcd-client") ||
			held(t, store) != nil {
			t.Errorf("it did %q, the lock is %+v", s.did, held(t, store))
		}
	})
}

func TestWithoutEtcdNobodyIsAsked(t *testing.T) {
	control, s := asking(&etcdtest.Store{})
	control.Signer = s // which knows no etcd
	blocked, err := control.Turn(t.Context())
	if err != nil || blocked != errNoEtcd.Error() || len(s.did) > 0 {
		t.Errorf("%q, %v", blocked, err)
	}
	control.Policy.RenewBefore = time.Second
	if blocked, err := control.Turn(t.Context()); blocked != "" || err != nil {
		t.Errorf("not due: %q, %v", blocked, err)
	}
}
