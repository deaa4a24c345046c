// SPDX-License-Identifier: Apache-2.0

// Package desired puts together what the host shall have now: what the ControllerConfig asks for, or what is remembered
// of it at the start, and over it what an operator of this host applied or paused.
//
// It validates what was applied and what is remembered as everything else is, and takes nothing else on trust. What
// is remembered repairs and never removes. It decides nothing about files: that is package plan.
package desired

import (
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
)

// Reading is what the source says: its state and, when the ControllerConfig was read, what it asks for.
type Reading struct {
	// State is one word or two for status and records, and Reason the fact behind it. Both are safe
	// to print.
	State  report.SourceState
	Reason string
	// Desired is nil unless the ControllerConfig was read just now.
	Desired *plan.Desired
	// Time is what the API server last said the time was.
	Time ServerTime
	// ConfigMap is how following the second source stands; nil if nothing takes from it.
	ConfigMap *report.Source
	// Identity is how the agent's own certificate stands, to be shown; nil if it has none of its own.
	Identity *report.Identity
}

// Options are what State needs from outside.
type Options struct {
	// Overrides reads what the operator of this host set by hand. A part that cannot be read is as in last, which is
	// what was read before, and the reason is the error. It may be nil.
	Overrides func(last state.Overrides) (state.Overrides, error)
	Memory    *state.Memory
	Trail     audit.Recorder
	Clock     clock.Host
	Log       *zap.Logger
	Policy    plan.Policy
	// Remember turns bytes that were kept back into entries, validating them again.
	Remember func(plan.Key, []byte) (plan.Entry, error)
	// Built is a time that has certainly passed; zero if nothing is known.
	Built time.Time
}

// State owns what the ControllerConfig and the operator asked for. One goroutine uses it.
type State struct {
	Options
	fromCluster *plan.Desired // what the ControllerConfig asks for
	current     *plan.Desired // with the local override over it
	inputs      inputs
	reading     Reading
	since       time.Time // of reading.State
	override    override
}

// inputs are what State.current was made of: as long as they are the same, so is it.
type inputs struct {
	fromCluster *plan.Desired
	applied     string // the ID of what the operator applied and is in force
	confirms    bool   // it confirms removals
	behind      behind
	pause       string
}

// behind names the sources that are not followed now.
type behind struct{ controllerConfig, configMap bool }

func (r Reading) behind() behind {
	return behind{controllerConfig: r.State != report.Following,
		configMap: r.ConfigMap != nil && r.ConfigMap.State != report.Following}
}

// New knows nothing yet.
func New(o Options) *State {
	return &State{Options: o, reading: Reading{State: "starting"}, since: o.Clock.Now()}
}

// Start begins with what is remembered. memoryLost says that it is not remembered whether what the operator applied was
// carried out.
func (s *State) Start(memoryLost bool) {
	s.fromCluster = s.lastGood()
	s.override.stale, s.override.memoryLost = true, memoryLost
}

// lastGood is what the ControllerConfig last asked for, as remembered. It is not verified: it repairs and
// never removes.
func (s *State) lastGood() *plan.Desired {
	remembered := s.Memory.State()
	d := &plan.Desired{ControllerConfig: remembered.ControllerConfig}
	for _, r := range remembered.LastGood {
		data, err := s.Memory.Content(r)
		if err == nil {
			var e plan.Entry
			if e, err = s.Remember(r.Key, data); err == nil {
				d.Entries = append(d.Entries, e)
				continue
			}
		}
		s.Log.Warn("a remembered file cannot be used", zap.Stringer("file", r.Key), zap.Error(err))
	}
	if len(d.Entries) == 0 {
		return nil
	}
	return d
}

// HandleReading accepts a reading.
func (s *State) HandleReading(r Reading) {
	if r.State != s.reading.State {
		s.since = s.Clock.Now()
		s.recordSource("the source", r.State, r.Reason)
	}
	if c, before := r.ConfigMap, s.reading.ConfigMap; c != nil && (before == nil || c.State != before.State) {
		s.recordSource("the ConfigMap", c.State, c.Reason)
	}
	d := r.Desired
	s.reading = r
	s.reading.Desired = nil
	if d == nil {
		return
	}
	if !d.Partial {
		s.Memory.Note(func(m *state.State) { m.Projection = d.Projection() })
	}
	object := *d
	if s.fromCluster != nil {
		object = d.Carry(*s.fromCluster, s.Policy)
	}
	s.fromCluster = &object
}

func (s *State) recordSource(what string, state report.SourceState, reason string) {
	message := strings.TrimSuffix(what+" is "+string(state)+": "+reason, ": ")
	s.Trail.Record(audit.Record{Kind: audit.SourceState, Message: message}.
		With(audit.State, string(state)).With(audit.Reason, reason))
}

// Current is what the host shall have, as the last Update put it together; nil while nobody has said anything. The
// caller changes nothing in it.
func (s *State) Current() *plan.Desired { return s.current }

// Update puts together what the host shall have now: what the ControllerConfig asks for, and over it the
// local override. There is nothing to want before either has spoken.
func (s *State) Update() {
	// A new version of the ControllerConfig is no reason to look, and every look is on its way to the disk.
	if s.override.stale {
		s.readOverride()
	}
	overrides := s.override.Overrides
	next := inputs{fromCluster: s.fromCluster, pause: s.pausedBy(overrides.Pause)}
	if s.fromCluster != nil { // else there is nobody to ask again for anything
		next.behind = s.reading.behind()
	}
	if (s.override.lastError == "" || overrides.Applied != nil) && s.inForce(overrides.Applied) {
		next.applied, next.confirms = overrides.Applied.ID, overrides.Applied.Now && !s.Memory.State().Override.CarriedOut
	}
	s.override.memoryLost = s.override.memoryLost && s.override.stale // what cannot be read yet is no later override
	if next == s.inputs {
		return
	}
	s.inputs = next
	s.current = next.fromCluster
	if next.applied != "" {
		base := plan.Desired{}
		if next.fromCluster != nil {
			base = *next.fromCluster
		}
		d := s.applied(*overrides.Applied).Over(base, s.Policy)
		d.Now = next.confirms
		s.current = &d
	}
	if s.current != nil && (next.pause != "" || next.behind != (behind{})) {
		d := *s.current
		d.Behind, d.ConfigMapBehind = next.behind.controllerConfig, next.behind.configMap
		if next.pause != "" {
			d.Paused = next.pause
		}
		s.current = &d
	}
	if s.current != nil { // at once: the reconcile that follows may not come to a plan
		s.Memory.Note(func(m *state.State) { m.Holds = m.Missing(*s.current, s.Policy) })
	}
}

// Planned notes that a plan for it is being carried out: what the operator confirmed is confirmed once, also if some of
// it fails, since it is noted with its hold and what is revoked stays on disk until it is taken away; and what is not
// among its entries is carried on no more.
func (s *State) Planned(entries []plan.Entry) {
	s.Memory.Note(func(m *state.State) { m.Override.CarriedOut = m.Override.CarriedOut || s.current.Now })
	for _, d := range []*plan.Desired{s.fromCluster, s.current} { // often the same
		if d != nil {
			*d = d.Bereft(entries)
		}
	}
}

// Moment is the present, as far as it is believed.
func (s *State) Moment() plan.Moment {
	notBefore := s.Built
	for _, e := range s.current.Entries {
		for _, c := range e.Certs {
			if c.NotBefore.After(notBefore) {
				notBefore = c.NotBefore
			}
		}
	}
	return plan.Moment{Boot: s.Clock.Boot(), Uptime: s.Clock.Uptime(),
		Wall: s.reading.Time.trusted(s.Clock.Now(), notBefore)}
}

// Status is its part of what is shown.
func (s *State) Status() report.Status {
	r := report.Status{State: s.reading.State, Reason: s.reading.Reason, Since: s.since.UTC(),
		ConfigMap: s.reading.ConfigMap, Identity: s.reading.Identity, Override: s.override.status(s.inputs.applied != "")}
	if s.current != nil {
		r.ControllerConfig, r.Paused = s.current.ControllerConfig, printable.Text(s.current.Paused)
	}
	if s.inputs.pause != "" {
		r.Paused = s.inputs.pause // there may be nothing to be paused yet
	}
	return r
}

// ServerTime is what an API server whose certificate was verified said the time was (the Date of RFC
// 9110 section 6.6.1), and this host's clock when that was read. It proves nothing in another boot.
type ServerTime struct {
	Date time.Time
	// Seen should hold a monotonic reading, so that setting the clock later does not move it.
	Seen time.Time
}

// maxSkew is how far the host's clock may be from the API server's to be believed: what the
// kube-controller-manager allows for, which issues certificates that began five minutes ago.
const maxSkew = 5 * time.Minute

// trusted gives the wall time if it may be used to call something expired, else the zero time. That
// takes a time from an API server in this boot, and no proof to the contrary: notBefore is a time that
// has certainly passed, as the newest NotBefore seen or the day this program was built. A clock that
// is wrong by years is ordinary on a host without a battery.
func (e ServerTime) trusted(wall, notBefore time.Time) time.Time {
	if e.Date.IsZero() {
		return time.Time{}
	}
	expected := e.Date.Add(wall.Sub(e.Seen))
	// Without the monotonic reading: it is the clock that is judged.
	skew := wall.Round(0).Sub(expected)
	if skew.Abs() > maxSkew || wall.Round(0).Before(notBefore) {
		return time.Time{}
	}
	return wall.Round(0)
}
