// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"slices"
	"strings"
	"time"

	keep "github.com/node-cert-agent/node-cert-agent/agent/identity"
)

const (
	// restart is what systemd waits before it starts a service again that died.
	restart = 2 * time.Second
	// settle is over which time the number of calls is judged, when nothing has happened for twice as long.
	settle = 10 * time.Minute
	// mostCalls and mostRequests are the bounds over that time: three calls in each pause of half a minute, and
	// a look at an old identity every ten seconds.
	mostCalls, mostRequests = 130, 4
	// soon is within which time an agent that was started uses the identity that it has.
	soon = time.Minute
	// soonest is within which time a file that leads to where a server is now has been used: files are looked at each
	// hour while there is an identity.
	soonest = 90 * time.Minute
)

// advance lets time go by, and looks again and again. The lock is not held.
func (w *env) advance(d time.Duration) {
	for end := time.Now().Add(d); w.violation == nil; {
		w.quiet()
		w.check()
		left := time.Until(end)
		if left <= 0 {
			return
		}
		time.Sleep(min(left, max(d/20, restart), 10*time.Minute))
		if w.dead() {
			w.logf("killed at %q", w.process.cause)
			w.start()
		}
	}
}

func (w *env) dead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.process.alive
}

// check judges what can be seen at any rest.
func (w *env) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.process
	if !p.alive {
		return
	}
	select {
	case s := <-p.keeper.Readings():
		if s.State != p.status.State {
			w.logf("%s: %s", s.State, s.Reason)
		}
		p.status = s
	default:
	}
	g := generationIn(w.dir[currentFile])
	if g != nil {
		if text := w.of(g).hint; text != p.heard {
			p.heard = text
			p.keeper.Hint(text)
		}
	}
	if old := generationIn(w.dir[previousFile]); g == nil && w.works(old) && time.Since(p.began) > soon &&
		!p.status.Usable {
		w.violate("given up", "the previous identity works and is not in use: %s: %s", p.status.State, p.status.Reason)
	}
	if w.works(g) && time.Since(p.began) > soon {
		switch {
		case !p.status.Usable:
			w.violate("given up", "the identity at %s works and is not in use: %s: %s", g.server, p.status.State,
				p.status.Reason)
		case p.status.Serial != g.cert.SerialNumber.Text(16):
			w.violate("given up", "the identity on disk works, and another one is in use")
		}
	}
	w.checkRequestRate()
}

// checkRequestRate judges the number of calls when nothing has happened for a while.
func (w *env) checkRequestRate() {
	old := func(t time.Time) bool { return time.Since(t) > settle }
	w.calls, w.creates = slices.DeleteFunc(w.calls, old), slices.DeleteFunc(w.creates, old)
	if time.Since(w.last) < 2*settle {
		return
	}
	if len(w.calls) > mostCalls {
		w.violate("calls", "%d calls in %v; %s: %s", len(w.calls), settle, w.process.status.State, w.process.status.Reason)
	}
	if len(w.creates) > mostRequests {
		w.violate("requests", "%d requests in %v; %s: %s", len(w.creates), settle, w.process.status.State,
			w.process.status.Reason)
	}
}

// converge ends all faults, and has an identity come of it that stays. A token is only put where there is nothing
// left that works.
func (w *env) converge() {
	w.logf("-- all faults end")
	w.mu.Lock()
	for _, c := range w.clusters {
		clear(c.faults)
		c.approver, c.delay, c.forbids, c.down, c.impostor = signs, 0, false, false, nil
	}
	w.stuck, w.closed, w.full, w.offset = false, false, false, 0
	w.process.left = 0
	w.dropConnections()
	g := generationIn(w.dir[currentFile])
	if home := w.present(); !w.works(g) || !strings.Contains(g.known, string(home.serving.PEM())) {
		w.bootstrap("90-last", home, true)
		w.logf("a last file leads to %s", home.name)
	}
	w.event()
	w.mu.Unlock()
	w.advance(soonest)
	w.settled("soon after the last fault")
	w.advance(3 * time.Hour)
	w.settled("three hours after the last fault")
	for end := time.Now().Add(5 * w.setting.Life / 2); time.Now().Before(end) && w.violation == nil; {
		w.advance(w.setting.Life / 20)
		w.settled("later")
	}
	if w.violation == nil && !w.setting.Keep && slices.ContainsFunc(w.files,
		func(f file) bool { return f.Digest.String() == w.served }) {
		w.violate("leftover", "the file that served is still there: %s", w.process.status.Reason)
	}
}

// settled judges that there is an identity and that it works.
func (w *env) settled(when string) {
	why := w.watch()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.violation != nil {
		return
	}
	g, s := generationIn(w.dir[currentFile]), w.process.status
	switch {
	case !w.works(g):
		w.violate("stuck", "%s there is no identity that works: %s: %s", when, s.State, s.Reason)
	case !s.Usable || s.State != keep.Active && s.State != keep.Renewing:
		w.violate("stuck", "%s the state is %s: %s", when, s.State, s.Reason)
	case why != "":
		w.violate("stuck", "%s the API server cannot be spoken to: %s", when, why)
	case time.Until(g.cert.NotAfter) < w.setting.Life/20:
		w.violate("starved", "%s the identity ends in %v: %s: %s", when, time.Until(g.cert.NotAfter), s.State, s.Reason)
	}
}
