// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
)

// killed is what a contact panics with when the process dies there.
type killed struct{}

// lives runs a manager until it has an identity and has renewed it once, and reports whether it got
// there before it was killed at its n-th contact with the outside.
func lives(w *env, n int) (what string, survived bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	w.contact = func(at string) {
		if n--; n == 0 {
			what = at
			panic(killed{})
		}
	}
	defer func() { w.contact = func(string) {} }()
	m := w.manager()
	w.until(m, Active, time.Minute)
	w.until(m, Renewing, w.life)
	w.until(m, Active, time.Minute)
	return "", true
}

func TestKilledAtEveryContactWithTheOutside(t *testing.T) {
	for n := 1; ; n++ {
		w := newEnv(t)
		w.files = []bootstrap.Credential{w.file("token", "good")}
		what, survived := lives(w, n)
		if survived {
			t.Logf("%d contacts", n-1)
			return
		}
		m := w.manager()
		w.until(m, Active, time.Minute)
		w.advance(m, time.Minute)
		if got := w.currentUser(m); got != us {
			t.Errorf("killed at %q: known as %q", what, got)
		}
		// A renewal may have been due when the second life began, hence at most one request more.
		if proofs := w.records(audit.IdentityProven) + w.records(audit.IdentityRenewed); w.made > 2 || proofs > 3 {
			t.Errorf("killed at %q: %d requests, %d proofs", what, w.made, proofs)
		}
		if len(w.files) > 0 {
			t.Errorf("killed at %q: the credential is still there", what)
		}
		if _, ok := w.dir[pendingFile]; ok {
			t.Errorf("killed at %q: a pending key is left", what)
		}
		if m.current == nil || w.records(audit.IdentityLost) > 0 {
			t.Errorf("killed at %q: something was lost", what)
		}
	}
}
