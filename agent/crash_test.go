// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

var errDead = errors.New("killed")

// death kills a host's agent at its n-th contact with the outside: from then on nothing that it does
// has an effect. With late set, that contact still has its effect and only its answer is lost.
type death struct {
	mu   sync.Mutex
	n    int
	late bool
	seen int
	dead bool
}

func (d *death) ask(operation, _ string) error {
	if operation == "read" || operation == "list" {
		return nil // a kill there is one before anything happened
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return errDead
	}
	if d.seen++; d.seen == d.n {
		d.dead = true
		if !d.late {
			return errDead
		}
	}
	return nil
}

// TestKilledAtAnyContactWithTheOutsideNothingIsLost is the invariant of docs/rationale.md on the agent's side: for
// every n, the agent is killed at its n-th operation on disk, systemd and memory, and its successor ends
// with the right files and a unit that has loaded them.
func TestKilledAtAnyContactWithTheOutsideNothingIsLost(t *testing.T) {
	for _, verb := range []unitplan.Verb{unitplan.Reload, unitplan.TryRestart} {
		for _, late := range []bool{false, true} {
			n := 1
			for ; killedAt(t, verb, n, late); n++ {
			}
			if n < 30 {
				t.Errorf("%s: the story has only %d contacts; is anybody asked at all?", verb, n)
			}
		}
	}
}

// killedAt tells the story with a kill, and whether the kill came to pass.
func killedAt(t *testing.T, verb unitplan.Verb, n int, late bool) bool {
	h := newHost(t)
	h.policy.Units[0].Verb = verb
	h.disk.Put(certsD+"foreign/ca.crt", "by hand")
	var loaded string
	h.systemd.Load = func(string) { loaded, _ = h.disk.Read(kubeletCA) }
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)

	d := &death{n: n, late: late}
	h.disk.Fail, h.systemd.Fail, h.dir.Fail = d.ask, d.ask, d.ask
	h.start()
	h.publish(kubelet(caA), registry("a", caA), registry("b", caB))
	h.elapse(2 * time.Second)
	h.publish(kubelet(caB), registry("b", caB))
	h.elapse(2 * time.Second)
	h.kill()
	d.dead, d.n = false, 0

	h.start()
	defer h.kill()
	h.publish(kubelet(caB), registry("b", caB))
	h.elapse(2 * time.Second)
	h.elapse(2 * time.Second)
	h.wantFile(kubeletCA, caB)
	h.wantFile(certsD+"a/ca.crt", "")
	h.wantFile(certsD+"b/ca.crt", caB)
	h.wantFile(certsD+"foreign/ca.crt", "by hand")
	if loaded != caB {
		t.Errorf("%s: the unit has not loaded what is on disk", verb)
	}
	if s := h.last.Units[0].State; s != "up to date" {
		t.Errorf("%s: the unit is %q", verb, s)
	}
	if t.Failed() {
		t.Fatalf("%s: killed at contact %d, late %v", verb, n, late)
	}
	return d.seen >= n
}
