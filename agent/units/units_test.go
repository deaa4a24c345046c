// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/node-cert-agent/node-cert-agent/agent/reloader"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

var a = unitplan.Unit{Name: "a.service", Verb: unitplan.Reload}

var since = time.UnixMicro(1_790_000_000_123_456)

// within is a context that ends a stuck test long before the test binary does.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func connected(t *testing.T, b *fakeBus) *Conn {
	c := New(b.address())
	t.Cleanup(func() { c.Close() })
	return c
}

// reason is that of an error, or "" without one.
func reason(t *testing.T, err error) reloader.Reason {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *reloader.Error
	if !errors.As(err, &e) {
		t.Fatalf("not a *reloader.Error: %v", err)
	}
	return e.Reason
}

func TestStateSaysWhetherAUnitRuns(t *testing.T) {
	run := unitplan.State{Exists: true, Invocation: strings.Repeat("07", 16), Since: since}
	with := func(change func(*unitplan.State)) unitplan.State {
		s := run
		change(&s)
		return s
	}
	running := with(func(s *unitplan.State) { s.Active = true })
	tests := map[string]struct {
		unit fakeUnit
		want unitplan.State
	}{
		"an active unit runs":                  {fakeUnit{active: "active"}, running},
		"a starting unit is about to":          {fakeUnit{active: "activating"}, running},
		"a reloading unit runs":                {fakeUnit{active: "reloading"}, running},
		"a refreshing unit runs":               {fakeUnit{active: "refreshing"}, running},
		"a stopping unit will read its files":  {fakeUnit{active: "deactivating"}, run},
		"an inactive unit will read its files": {fakeUnit{active: "inactive"}, run},
		"a failed unit is known to have failed": {fakeUnit{active: "failed"},
			with(func(s *unitplan.State) { s.Failed = true })},
		"a masked unit is none, although it runs":         {fakeUnit{active: "active", load: "masked"}, unitplan.State{}},
		"a unit whose file is gone is none":               {fakeUnit{active: "active", load: "not-found"}, unitplan.State{}},
		"a unit whose new file is wrong is still the one": {fakeUnit{active: "active", load: "bad-setting"}, running},
		"a unit with a job is busy": {fakeUnit{active: "active", more: map[string]any{"Job": job{7, jobPath(7)}}},
			with(func(s *unitplan.State) { s.Active, s.Busy = true, true })},
		"a unit without a job is not": {fakeUnit{active: "active", more: map[string]any{"Job": job{0, "/"}}}, running},
		"a start is known by a clock that nobody sets, too": {fakeUnit{active: "active",
			more: map[string]any{"InactiveExitTimestampMonotonic": uint64(90e6)}},
			with(func(s *unitplan.State) { s.Active, s.SinceUptime = true, 90*time.Second })},
		"a unit has a start limit": {fakeUnit{active: "active", more: map[string]any{"StartLimitBurst": uint32(5),
			"StartLimitIntervalUSec": uint64(10e6)}},
			with(func(s *unitplan.State) { s.Active, s.StartBurst, s.StartInterval = true, 5, 10*time.Second })},
		"a limit over no time is none": {fakeUnit{active: "active",
			more: map[string]any{"StartLimitBurst": uint32(5), "StartLimitIntervalUSec": uint64(0)}}, running},
		"a limit over all time is not understood": {fakeUnit{active: "active",
			more: map[string]any{"StartLimitBurst": uint32(5), "StartLimitIntervalUSec": uint64(math.MaxUint64)}}, running},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			tt.unit.invocation, tt.unit.since = 7, since
			have, err := connected(t, newFakeBus(t, map[string]*fakeUnit{"a-b.service": &tt.unit})).Look(within(t),
				unitplan.Unit{Name: "a-b.service"})
			if err != nil || have.State != tt.want || tt.want.Exists && have.Name != "a-b.service" {
				t.Errorf("have %+v, %v", have, err)
			}
		})
	}
	if have, err := connected(t, newFakeBus(t, nil)).Look(within(t), unitplan.Unit{Name: "a.service"}); err != nil ||
		have.Name != "" || have.State != (unitplan.State{}) {
		t.Errorf("a unit that does not exist: have %+v, %v", have, err)
	}
}

// job is the type of a unit's property Job.
type job struct {
	ID   uint32
	Path dbus.ObjectPath
}

func TestActWaitsForTheJobAndReturnsTheNewState(t *testing.T) {
	restarted := func(u *fakeUnit) string {
		u.active, u.invocation = "active", 9
		return "done"
	}
	for _, early := range []bool{false, true} {
		b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active", kind: "oneshot", invocation: 7, since: since,
			act: restarted}})
		b.early = early
		for verb, method := range map[unitplan.Verb]string{unitplan.Reload: "ReloadUnit",
			unitplan.TryRestart: "TryRestartUnit", unitplan.Restart: "RestartUnit"} {
			have, err := connected(t, b).Act(within(t), unitplan.Unit{Name: "a.service", Verb: verb})
			want := unitplan.State{Exists: true, Active: true, Invocation: strings.Repeat("09", 16), Since: since}
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
	ended := func(how string) func(*fakeUnit) string {
		return func(u *fakeUnit) string {
			u.active, u.sub, u.result = "inactive", "dead", how
			return "done"
		}
	}
	becomes := func(active, result string) func(*fakeUnit) string {
		return func(u *fakeUnit) string {
			u.active, u.sub = active, "sub"
			return result
		}
	}
	tests := map[string]struct {
		unit *fakeUnit
		verb unitplan.Verb
		want string
	}{
		"when the bus says no": {&fakeUnit{active: "active", deny: "org.freedesktop.DBus.Error.AccessDenied"},
			unitplan.Reload,
			"reload a.service: denied: org.freedesktop.DBus.Error.AccessDenied: Permission denied"},
		"when a person would have to be asked": {&fakeUnit{active: "active",
			deny: "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"}, unitplan.TryRestart,
			"try-restart a.service: denied: org.freedesktop.DBus.Error.InteractiveAuthorizationRequired: Permission denied"},
		"when the unit does not exist": {nil, unitplan.Reload,
			"reload a.service: no-such-unit: org.freedesktop.systemd1.NoSuchUnit: Unit a.service not found."},
		"when the unit is masked": {&fakeUnit{load: "masked", deny: "org.freedesktop.systemd1.UnitMasked"}, unitplan.Reload,
			"reload a.service: no-such-unit: org.freedesktop.systemd1.UnitMasked: Permission denied"},
		"when the unit cannot reload": {&fakeUnit{active: "active", cannotReload: true}, unitplan.Reload,
			"reload a.service: not-applicable: org.freedesktop.systemd1.JobTypeNotApplicable: Job type reload is not " +
				"applicable for unit a.service."},
		"when a job of somebody else is in the way": {&fakeUnit{active: "active",
			deny: "org.freedesktop.systemd1.TransactionIsDestructive"}, unitplan.TryRestart,
			"try-restart a.service: later: org.freedesktop.systemd1.TransactionIsDestructive: Permission denied"},
		"when systemd is not on the bus": {&fakeUnit{deny: "org.freedesktop.DBus.Error.ServiceUnknown"}, unitplan.Reload,
			"reload a.service: unreachable: org.freedesktop.DBus.Error.ServiceUnknown: Permission denied"},
		"when the answer is new to us": {&fakeUnit{deny: "org.freedesktop.systemd1.News"}, unitplan.Reload,
			"reload a.service: unexpected: org.freedesktop.systemd1.News: Permission denied"},
		"when the job fails": {&fakeUnit{active: "active", act: becomes("active", "failed")}, unitplan.Reload,
			"reload a.service: job-failed: the job's result is failed"},
		"when the job is cancelled": {&fakeUnit{active: "active", act: becomes("active", "canceled")}, unitplan.Reload,
			"reload a.service: job-failed: the job's result is canceled"},
		"when the unit is down after it": {&fakeUnit{active: "active", act: becomes("failed", "done")}, unitplan.TryRestart,
			"try-restart a.service: not-active: the job is done and the unit is failed (sub)"},
		"when the unit waits for its next start": {&fakeUnit{active: "active", act: becomes("activating", "done")},
			unitplan.TryRestart,
			"try-restart a.service: not-active: the job is done and the unit is activating (sub)"},
		"when the unit was not running": {&fakeUnit{active: "inactive", act: ended("success")}, unitplan.TryRestart,
			"try-restart a.service: not-active: the job is done and the unit is inactive (dead)"},
		"when the run of a oneshot failed": {&fakeUnit{kind: "oneshot", act: ended("exit-code")}, unitplan.Restart,
			"restart a.service: not-active: the job is done and the result of its run is exit-code"},
		"when a oneshot is beyond its start limit": {&fakeUnit{kind: "oneshot", act: becomes("failed", "done")},
			unitplan.Restart,
			"restart a.service: not-active: the job is done and the unit is failed (sub)"},
		"when a service is restarted that is no oneshot": {&fakeUnit{active: "active", kind: "notify"}, unitplan.Restart,
			"restart a.service: refused: only a oneshot is restarted, and its type is notify"},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			units := map[string]*fakeUnit{"a.service": tt.unit}
			state, err := connected(t, newFakeBus(t, units)).Act(within(t), unitplan.Unit{Name: "a.service", Verb: tt.verb})
			if err == nil || err.Error() != tt.want || state != (unitplan.State{}) {
				t.Errorf("have %+v, %v\nwant %s", state, err, tt.want)
			}
			reason(t, err)
			if e := (*reloader.Error)(nil); !errors.As(err, &e) || e.Denied() != (strings.Contains(tt.want, ": denied: ") ||
				strings.Contains(tt.want, ": refused: ")) || e.Unreachable() != strings.Contains(tt.want, ": unreachable: ") {
				t.Errorf("denied is %v, unreachable %v", e.Denied(), e.Unreachable())
			}
		})
	}
}

func TestOtherVerbsNeverReachTheBus(t *testing.T) {
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active"}})
	c := connected(t, b)
	for _, verb := range []unitplan.Verb{"", "start", "stop", "Restart", "reload-or-restart", "kill", "Reload"} {
		if _, err := c.Act(within(t), unitplan.Unit{Name: "a.service", Verb: verb}); reason(t, err) != reloader.Refused {
			t.Errorf("%q: %v", verb, err)
		}
	}
	if c.bus != nil || len(b.started) > 0 {
		t.Error("the bus was asked")
	}
}

func TestAOneshotThatFinishedWellSucceeded(t *testing.T) {
	for _, after := range []string{"inactive", "active"} { // without and with RemainAfterExit=
		run := func(u *fakeUnit) string {
			u.active, u.result, u.invocation, u.since = after, "success", 9, since
			return "done"
		}
		b := newFakeBus(t, map[string]*fakeUnit{"a.service": {kind: "oneshot", act: run}})
		have, err := connected(t, b).Act(within(t), unitplan.Unit{Name: "a.service", Verb: unitplan.Restart})
		want := unitplan.State{Exists: true, Active: after == "active", Invocation: strings.Repeat("09", 16), Since: since}
		if err != nil || have != want {
			t.Errorf("%s: have %+v, %v", after, have, err)
		}
	}
}

func TestAnEndThatSystemdDidNotAnnounceIsNotBelieved(t *testing.T) {
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active",
		act: func(*fakeUnit) string { return "failed" }}})
	b.forge = true
	if _, err := connected(t, b).Act(within(t), unitplan.Unit{Name: "a.service", Verb: unitplan.Reload}); reason(t,
		err) != reloader.JobFailed {
		t.Errorf("have %v", err)
	}
}

func TestOneJobDoesNotDelayAnother(t *testing.T) {
	slow := make(chan struct{})
	b := newFakeBus(t, map[string]*fakeUnit{"slow.service": {active: "active", job: slow},
		"fast.service": {active: "active"}})
	b.early = true // there is no answer before the job could end
	c, ctx := connected(t, b), within(t)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Act(ctx, unitplan.Unit{Name: "slow.service", Verb: unitplan.Reload})
		ended <- err
	}()
	<-b.started
	if _, err := c.Act(ctx, unitplan.Unit{Name: "fast.service", Verb: unitplan.Reload}); err != nil {
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
	if _, err := c.Act(ctx, unitplan.Unit{Name: "a.service", Verb: unitplan.Reload}); reason(t,
		err) != reloader.Unfinished {
		t.Errorf("have %v", err)
	}
	if s, err := c.Look(within(t), a); err != nil || !s.State.Active {
		t.Errorf("the connection is of no use any more: %+v, %v", s, err)
	}
}

func TestAffectedFollowsWhatSystemdCarriesOn(t *testing.T) {
	needs := func(property string, names ...string) *fakeUnit {
		return &fakeUnit{active: "active", more: map[string]any{property: names}}
	}
	b := newFakeBus(t, map[string]*fakeUnit{
		"crio.service": {active: "active", more: map[string]any{"RequiredBy": []string{"kubelet.service"},
			"BoundBy": []string{"b.service"}, "WantedBy": []string{"multi-user.target"}}},
		"kubelet.service": needs("ConsistsOf", "part.service", "crio.service"),
		"b.service":       needs("PropagatesReloadTo", "reloaded.service"),
		"part.service":    needs("RequisiteOf", "last.target"),
		"alone.service":   needs("RequiredBy"),
		"first.service":   needs("PropagatesReloadTo", "second.service"),
		"second.service":  needs("PropagatesReloadTo", "missing.service", "second.service"),
	})
	c := connected(t, b)
	for _, tt := range []struct {
		verb unitplan.Verb
		unit string
		want []string
	}{
		{unitplan.TryRestart, "crio.service", []string{"b.service", "kubelet.service", "last.target", "part.service"}},
		{unitplan.Restart, "part.service", []string{"last.target"}},
		{unitplan.Reload, "crio.service", nil},
		{unitplan.Reload, "first.service", []string{"missing.service", "second.service"}},
		{unitplan.TryRestart, "alone.service", nil},
		{unitplan.TryRestart, "missing.service", nil},
	} {
		have, err := c.Look(within(t), unitplan.Unit{Name: tt.unit, Verb: tt.verb})
		if err != nil || !slices.Equal(have.Affected, tt.want) || have.Name != "" && len(have.Starts) != 1+len(tt.want) {
			t.Errorf("%s %s: have %+v, %v, want %q", tt.verb, tt.unit, have, err, tt.want)
		}
	}
	b.stop()
	if _, err := c.Look(within(t), unitplan.Unit{Name: "crio.service", Verb: unitplan.Reload}); reason(t,
		err) != reloader.Unreachable {
		t.Errorf("without a bus: %v", err)
	}
}

func TestALostBusIsReportedAndDialledAgain(t *testing.T) {
	slow := make(chan struct{})
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active", job: slow}})
	c, u := connected(t, b), unitplan.Unit{Name: "a.service", Verb: unitplan.Reload}
	go func() {
		<-b.started
		b.stop()
	}()
	if _, err := c.Act(within(t), u); reason(t, err) != reloader.Unreachable {
		t.Errorf("while the job runs: %v", err)
	}
	if _, err := c.Look(within(t), a); reason(t, err) != reloader.Unreachable {
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
	if _, err := c.Look(ctx, a); err != nil {
		t.Fatal(err)
	}
	first := c.bus
	cancel()
	if _, err := c.Look(within(t), a); err != nil || c.bus != first {
		t.Errorf("dialled anew, %v", err)
	}
}

func TestASilentBusIsGivenUp(t *testing.T) {
	b := newFakeBus(t, nil)
	b.mu.Lock() // nobody accepts
	defer b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := New(b.address()).Look(ctx, a); reason(t, err) != reloader.Unreachable {
		t.Errorf("have %v", err)
	}
}

func TestAJobWhoseEndIsNeverAnnouncedIsUnknownOnceSystemdHasItNoMore(t *testing.T) {
	running := make(chan struct{})
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active", job: running, lost: true}})
	c := connected(t, b)
	c.pollInterval = 20 * time.Millisecond
	ended := make(chan error, 1)
	go func() {
		_, err := c.Act(within(t), a)
		ended <- err
	}()
	<-b.started
	select {
	case err := <-ended:
		t.Fatalf("given up while systemd has the job: %v", err)
	case <-time.After(5 * c.pollInterval):
	}
	close(running)
	if err := <-ended; reason(t, err) != reloader.Unreachable {
		t.Errorf("have %v", err)
	}
}

func TestARequestThatSystemdDoesNotAnswerIsUnknown(t *testing.T) {
	running := make(chan struct{})
	defer close(running)
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active", job: running}})
	b.early = true // the answer would come after the end of the job
	c := connected(t, b)
	c.pollInterval = 20 * time.Millisecond
	if _, err := c.Act(within(t), a); reason(t, err) != reloader.Unreachable {
		t.Errorf("have %v", err)
	}
}
