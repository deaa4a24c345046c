// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

var since = time.UnixMicro(1_790_000_000_123_456)

// within is a context that ends a stuck test long before the test binary does.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func connected(t *testing.T, b *fakeBus) *Conn {
	c := New(b.address(), "boot-1")
	t.Cleanup(func() { c.Close() })
	return c
}

// reason is that of an *Error, or "" without an error.
func reason(t *testing.T, err error) Reason {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("not an *Error: %v", err)
	}
	return e.Reason
}

func TestStateSaysWhetherAUnitRuns(t *testing.T) {
	running := plan.UnitState{Active: true, Boot: "boot-1", Invocation: strings.Repeat("07", 16), Since: since}
	tests := map[string]struct {
		active string
		want   plan.UnitState
	}{
		"an active unit runs":                   {"active", running},
		"a starting unit is about to":           {"activating", running},
		"a reloading unit runs":                 {"reloading", running},
		"a refreshing unit runs":                {"refreshing", running},
		"a stopping unit will read its files":   {"deactivating", plan.UnitState{}},
		"a failed unit will read its files":     {"failed", plan.UnitState{}},
		"an inactive unit will read its files":  {"inactive", plan.UnitState{}},
		"a unit that does not exist is no unit": {"", plan.UnitState{}},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			b := newFakeBus(t, map[string]*fakeUnit{"a-b.service": {active: tt.active, invocation: 7, since: since}})
			have, err := connected(t, b).State(within(t), "a-b.service")
			if err != nil || have != tt.want {
				t.Errorf("have %+v, %v", have, err)
			}
		})
	}
}

func TestActWaitsForTheJobAndReturnsTheNewState(t *testing.T) {
	restarted := func(u *fakeUnit) string {
		u.active, u.invocation = "active", 9
		return "done"
	}
	for _, early := range []bool{false, true} {
		b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active", invocation: 7, since: since, act: restarted}})
		b.early = early
		for verb, method := range map[plan.Verb]string{plan.Reload: "ReloadUnit", plan.TryRestart: "TryRestartUnit"} {
			have, err := connected(t, b).Act(within(t), plan.Unit{Name: "a.service", Verb: verb})
			want := plan.UnitState{Active: true, Boot: "boot-1", Invocation: strings.Repeat("09", 16), Since: since}
			if err != nil || have != want {
				t.Fatalf("%s: have %+v, %v", verb, have, err)
			}
			if call := <-b.started; call != method+" a.service" {
				t.Errorf("%s called %s", verb, call)
			}
		}
	}
}

func TestActFails(t *testing.T) {
	becomes := func(active, result string) func(*fakeUnit) string {
		return func(u *fakeUnit) string {
			u.active, u.sub = active, "sub"
			return result
		}
	}
	tests := map[string]struct {
		unit *fakeUnit
		verb plan.Verb
		want string
	}{
		"when polkit says no": {&fakeUnit{active: "active", deny: "org.freedesktop.DBus.Error.AccessDenied"}, plan.Reload,
			"reload a.service: denied: org.freedesktop.DBus.Error.AccessDenied: Permission denied"},
		"when polkit would ask a person": {&fakeUnit{active: "active", deny: "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"}, plan.TryRestart,
			"try-restart a.service: denied: org.freedesktop.DBus.Error.InteractiveAuthorizationRequired: Permission denied"},
		"when the unit does not exist": {nil, plan.Reload,
			"reload a.service: no-such-unit: org.freedesktop.systemd1.NoSuchUnit: Unit a.service not found."},
		"when the unit is masked": {&fakeUnit{deny: "org.freedesktop.systemd1.UnitMasked"}, plan.Reload,
			"reload a.service: no-such-unit: org.freedesktop.systemd1.UnitMasked: Permission denied"},
		"when the unit cannot reload": {&fakeUnit{active: "active", cannotReload: true}, plan.Reload,
			"reload a.service: not-applicable: org.freedesktop.systemd1.JobTypeNotApplicable: Job type reload is not applicable for unit a.service."},
		"when systemd is not on the bus": {&fakeUnit{deny: "org.freedesktop.DBus.Error.ServiceUnknown"}, plan.Reload,
			"reload a.service: unreachable: org.freedesktop.DBus.Error.ServiceUnknown: Permission denied"},
		"when the answer is new to us": {&fakeUnit{deny: "org.freedesktop.systemd1.News"}, plan.Reload,
			"reload a.service: unexpected: org.freedesktop.systemd1.News: Permission denied"},
		"when the job fails": {&fakeUnit{active: "active", act: becomes("active", "failed")}, plan.Reload,
			"reload a.service: job-failed: the job's result is failed"},
		"when the job is cancelled": {&fakeUnit{active: "active", act: becomes("active", "canceled")}, plan.Reload,
			"reload a.service: job-failed: the job's result is canceled"},
		"when the unit is down after it": {&fakeUnit{active: "active", act: becomes("failed", "done")}, plan.TryRestart,
			"try-restart a.service: not-active: the job is done and the unit is failed (sub)"},
		"when the unit waits for its next start": {&fakeUnit{active: "active", act: becomes("activating", "done")}, plan.TryRestart,
			"try-restart a.service: not-active: the job is done and the unit is activating (sub)"},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			units := map[string]*fakeUnit{"a.service": tt.unit}
			state, err := connected(t, newFakeBus(t, units)).Act(within(t), plan.Unit{Name: "a.service", Verb: tt.verb})
			if err == nil || err.Error() != tt.want || state != (plan.UnitState{}) {
				t.Errorf("have %+v, %v\nwant %s", state, err, tt.want)
			}
			reason(t, err)
		})
	}
}

func TestOtherVerbsNeverReachTheBus(t *testing.T) {
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active"}})
	c := connected(t, b)
	for _, verb := range []plan.Verb{"", "start", "stop", "restart", "reload-or-restart", "kill", "Reload"} {
		if _, err := c.Act(within(t), plan.Unit{Name: "a.service", Verb: verb}); reason(t, err) != Refused {
			t.Errorf("%q: %v", verb, err)
		}
	}
	if c.bus != nil || len(b.started) > 0 {
		t.Error("the bus was asked")
	}
}

func TestAnEndThatSystemdDidNotAnnounceIsNotBelieved(t *testing.T) {
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active", act: func(*fakeUnit) string { return "failed" }}})
	b.forge = true
	if _, err := connected(t, b).Act(within(t), plan.Unit{Name: "a.service", Verb: plan.Reload}); reason(t, err) != JobFailed {
		t.Errorf("have %v", err)
	}
}

func TestOneJobDoesNotDelayAnother(t *testing.T) {
	slow := make(chan struct{})
	b := newFakeBus(t, map[string]*fakeUnit{"slow.service": {active: "active", job: slow}, "fast.service": {active: "active"}})
	b.early = true // systemd asks polkit: there is no answer before the job could end
	c, ctx := connected(t, b), within(t)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Act(ctx, plan.Unit{Name: "slow.service", Verb: plan.Reload})
		ended <- err
	}()
	<-b.started
	if _, err := c.Act(ctx, plan.Unit{Name: "fast.service", Verb: plan.Reload}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the slow job ended first: %v", err)
	default:
	}
	close(slow)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAJobPastItsTimeIsReportedAndGoesOn(t *testing.T) {
	slow := make(chan struct{})
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active", job: slow}})
	defer close(slow)
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		<-b.started
		cancel()
	}()
	c := connected(t, b)
	if _, err := c.Act(ctx, plan.Unit{Name: "a.service", Verb: plan.Reload}); reason(t, err) != Unfinished {
		t.Errorf("have %v", err)
	}
	if s, err := c.State(within(t), "a.service"); err != nil || !s.Active {
		t.Errorf("the connection is of no use any more: %+v, %v", s, err)
	}
}

func TestALostBusIsReportedAndDialledAgain(t *testing.T) {
	slow := make(chan struct{})
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active", job: slow}})
	c, u := connected(t, b), plan.Unit{Name: "a.service", Verb: plan.Reload}
	go func() {
		<-b.started
		b.stop()
	}()
	if _, err := c.Act(within(t), u); reason(t, err) != Unreachable {
		t.Errorf("while the job runs: %v", err)
	}
	if _, err := c.State(within(t), "a.service"); reason(t, err) != Unreachable {
		t.Errorf("without a bus: %v", err)
	}
	close(slow)
	b.start()
	if _, err := c.Act(within(t), u); err != nil {
		t.Errorf("after the bus came back: %v", err)
	}
}

func TestTheCallersContextDoesNotEndTheConnection(t *testing.T) {
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active"}})
	c := connected(t, b)
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := c.State(ctx, "a.service"); err != nil {
		t.Fatal(err)
	}
	first := c.bus
	cancel()
	if _, err := c.State(within(t), "a.service"); err != nil || c.bus != first {
		t.Errorf("dialled anew, %v", err)
	}
}

func TestASilentBusIsGivenUp(t *testing.T) {
	b := newFakeBus(t, nil)
	b.mu.Lock() // nobody accepts
	defer b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := New(b.address(), "").State(ctx, "a.service"); reason(t, err) != Unreachable {
		t.Errorf("have %v", err)
	}
}
