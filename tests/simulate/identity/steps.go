// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// operation is something that may happen. It runs with the lock held, unless it takes time.
type operation struct {
	name   string
	weight int
	do     func(w *env, r *rand.Rand)
	takes  func(w *env, r *rand.Rand)
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (w *env) some(r *rand.Rand) *cluster { return w.clusters[pick(r, "a", "a", "b")] }

// present is the cluster where the agent is, or a.
func (w *env) present() *cluster {
	if c := w.of(generationIn(w.dir[currentFile])); c != nil {
		return c
	}
	return w.clusters["a"]
}

// operations are all that may happen.
var operations = []operation{
	{name: "wait", weight: 14, takes: func(w *env, r *rand.Rand) {
		life := w.setting.Life
		w.advance(pick(r, time.Second, 20*time.Second, 3*time.Minute, 40*time.Minute, time.Hour, life/3, life) +
			time.Duration(r.Int64N(int64(time.Second))))
	}},
	{name: "approver", weight: 6, do: func(w *env, r *rand.Rand) {
		c := w.some(r)
		c.approver = pick(r, signs, signs, away, denies, nonsense, otherName, unknownCA)
		c.delay = pick(r, 0, 0, 3*time.Second, 10*time.Minute)
		w.logf("the approver of %s %s after %v", c.name, c.approver, c.delay)
	}},
	{name: "fault", weight: 8, do: func(w *env, r *rand.Rand) {
		c := w.some(r)
		f := fault{status: pick(r, 0, 1, 400, 401, 403, 404, 409, 429, 500, 503), every: pick(r, 1, 1, 2, 5)}
		for _, k := range kinds {
			if r.IntN(2) == 0 {
				c.faults[k] = f
				w.logf("%s of %s fails: %d but each %d.", k, c.name, f.status, f.every)
			}
		}
	}},
	{name: "behind", weight: 3, takes: func(w *env, r *rand.Rand) { w.behind(r) }},
	{name: "faultless", weight: 4, do: func(w *env, r *rand.Rand) { clear(w.some(r).faults) }},
	{name: "forbid", weight: 2, do: func(w *env, r *rand.Rand) { c := w.some(r); c.forbids = !c.forbids }},
	{name: "down", weight: 3, do: func(w *env, r *rand.Rand) {
		c := w.some(r)
		c.down = !c.down
		w.logf("%s down: %v", c.name, c.down)
	}},
	{name: "impostor", weight: 2, do: func(w *env, r *rand.Rand) {
		c := w.some(r)
		if c.impostor != nil {
			c.impostor = nil
		} else if c.impostor, c.cross = &w.impostor, r.IntN(2) == 0; c.cross {
			c.impersonate(w.other(c))
		}
		w.dropConnections()
		w.logf("an impostor at %s: %v, with a certificate of the other cluster: %v", c.name, c.impostor != nil, c.cross)
	}},
	{name: "revoke", weight: 3, do: func(w *env, _ *rand.Rand) {
		if g := generationIn(w.dir[currentFile]); w.works(g) {
			w.of(g).revoked[g.cert.SerialNumber.Text(16)] = true
			w.logf("revoked")
		}
	}},
	{name: "clientca", weight: 2, do: func(w *env, r *rand.Rand) {
		c := w.some(r)
		if r.IntN(2) == 0 {
			c.trusted = nil
		}
		c.issueWith(w.authority("clients"))
		w.logf("another client CA at %s, beside %d", c.name, len(c.trusted)-1)
	}},
	{name: "servingca", weight: 2, do: func(w *env, r *rand.Rand) {
		c := w.some(r)
		next := w.authority("serving")
		if announced := r.IntN(3); announced > 0 && c == w.present() && w.process.alive {
			w.process.keeper.Trust(slices.Concat(c.serving.PEM(), next.PEM()))
		} else if announced == 0 {
			w.pins = append(w.pins, pinOf(next.Cert)) // known to the next life
		}
		c.serve(next)
		w.dropConnections()
		w.logf("another serving CA at %s", c.name)
	}},
	{name: "trust", weight: 2, do: func(w *env, r *rand.Rand) {
		if w.process.alive {
			w.process.keeper.Trust(pick(r, w.present().serving.PEM(), testpki.NewCA("stranger"), nil))
		}
	}},
	{name: "token", weight: 6, do: func(w *env, r *rand.Rand) {
		c := w.some(r)
		name := fmt.Sprintf("%d0-file", 1+r.IntN(4))
		w.bootstrap(name, c, r.IntN(3) > 0)
		w.logf("%s leads to %s", name, c.name)
	}},
	{name: "rubbish", weight: 1, do: func(w *env, r *rand.Rand) {
		w.put++
		id := bootstrap.ID{Name: fmt.Sprintf("%d0-file", 1+r.IntN(4)), Digest: plan.DigestOf(fmt.Append(nil, "rubbish ",
			w.put))}
		content := pick(r, "", "a: [", "users: [{name: u, user: {exec: {command: x}}}]")
		w.place(file{Credential: bootstrap.Credential{ID: id, Content: secret.New([]byte(content))}})
	}},
	{name: "unfile", weight: 2, do: func(w *env, r *rand.Rand) {
		if len(w.files) > 0 {
			i := r.IntN(len(w.files))
			w.files = slices.Delete(w.files, i, i+1)
		}
	}},
	{name: "expire", weight: 2, do: func(w *env, r *rand.Rand) { clear(w.some(r).tokens) }},
	{name: "forget", weight: 2, do: func(w *env, r *rand.Rand) { clear(w.some(r).requests) }},
	{name: "stuck", weight: 2, do: func(w *env, _ *rand.Rand) { w.stuck = !w.stuck }},
	{name: "closed", weight: 2, do: func(w *env, _ *rand.Rand) { w.closed = !w.closed }},
	{name: "full", weight: 2, do: func(w *env, _ *rand.Rand) { w.full = !w.full }},
	{name: "kill", weight: 8, do: func(w *env, r *rand.Rand) {
		if w.process.alive {
			w.process.left = 1 + r.IntN(40)
		}
	}},
	{name: "restart", weight: 3, takes: func(w *env, r *rand.Rand) {
		w.process.reap()
		time.Sleep(pick(r, 0, time.Minute, time.Hour, w.setting.Life, 2*w.setting.Life))
		w.start()
	}},
	{name: "watch", weight: 4, takes: func(w *env, _ *rand.Rand) { w.watch() }},
	{name: "clock", weight: 3, do: func(w *env, r *rand.Rand) {
		w.offset = pick(r, 0, 0, time.Minute, -time.Minute, 5*time.Hour, -5*time.Hour,
			40*24*time.Hour, 40*24*time.Hour, -40*24*time.Hour, -9*365*24*time.Hour)
		w.logf("the clock is wrong by %v", w.offset)
	}},
	{name: "damage", weight: 2, takes: func(w *env, r *rand.Rand) {
		w.process.reap()
		w.mu.Lock()
		for _, name := range []string{currentFile, previousFile, pendingFile, "cluster-hint.json"} {
			if b := w.dir[name]; len(b) > 0 && r.IntN(3) == 0 {
				w.dir[name] = b[:r.IntN(len(b))]
				w.logf("%s is cut off", name)
			}
		}
		w.mu.Unlock()
		w.start()
	}},
	{name: "hint", weight: 3, do: func(w *env, r *rand.Rand) {
		from := w.present()
		to := w.clusters[pick(r, "a", "b")]
		if from.hint = ""; r.IntN(3) > 0 {
			from.announces(to)
		}
		if r.IntN(2) == 0 {
			to.trusts(from)
		}
		if r.IntN(5) == 0 {
			to.announces(from)
			from.trusts(to)
		}
	}},
}

// behind has the identity refused for a while, as by the one API server of several that lags.
func (w *env) behind(r *rand.Rand) {
	w.mu.Lock()
	c := w.present()
	f := fault{status: http.StatusUnauthorized, every: pick(r, 1, 1, 2)}
	c.faults["whoami"], c.faults["watch"] = f, f
	w.logf("%s is behind", c.name)
	w.mu.Unlock()
	w.watch()
	w.advance(pick(r, 20*time.Second, 90*time.Second, 5*time.Minute))
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(c.faults, "whoami")
	delete(c.faults, "watch")
}

// announces has the object of a cluster say that it is going to be another one.
func (c *cluster) announces(to *cluster) {
	text, _ := json.Marshal(map[string]any{"server": to.url(), "certificateAuthorityData": to.serving.PEM()})
	c.hint = string(text)
	c.w.logf("%s announces %s", c.name, to.name)
}

// trusts has a cluster know the clients of another one, beside its own.
func (c *cluster) trusts(other *cluster) {
	if c != other && !slices.Contains(c.trusted, other.issuer) {
		c.trusted = append([]*testpki.Authority{other.issuer}, c.trusted...)
	}
}

// dropConnections ends the connections that are open, as a server does that is started anew.
func (w *env) dropConnections() {
	if w.process == nil {
		return
	}
	for _, c := range w.process.conns {
		_ = c.Close()
	}
	w.process.conns = nil
}
