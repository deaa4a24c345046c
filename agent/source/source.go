// SPDX-License-Identifier: Apache-2.0

// Package source follows what the cluster asks of this host: it joins an identity, two watches and the projection
// of what they read onto the host's files into the one stream of readings that the agent's loop takes.
//
// It owns as whom the API server is spoken to and when that is good enough to begin, which certificates that
// identity trusts, and how the ControllerConfig and the ConfigMap become one Desired. It promises that a reading which
// nobody has taken yet is replaced by a newer one without losing what it asked for, that trouble with one of the two
// does not hold up the other, and that whatever others said is escaped before it is offered. It never gives up: what is
// missing is a state with a reason. It decides nothing about files; that is package plan's.
package source

import (
	"cmp"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

// NoIdentity is the state of a host as which nobody can speak to the API server yet.
const NoIdentity = "no identity"

// Source reads the ControllerConfig and, if a field takes from it, the ConfigMap. Make it with New, and run it in one
// way: with FollowKubeconfig, FollowIdentity or Once.
type Source struct {
	settings  config.Settings
	log       *zap.Logger
	readings  chan desired.Reading
	trust     trust
	object    input
	configMap input
}

// New makes a Source. Of the settings it uses what is watched and how, and the fields.
func New(s config.Settings, log *zap.Logger) *Source {
	return &Source{settings: s, log: log, readings: make(chan desired.Reading, 1)}
}

// Readings carries what was read, the newest only.
func (s *Source) Readings() <-chan desired.Reading { return s.readings }

// Trust is how the API server is verified, whichever identity speaks to it at the time.
func (s *Source) Trust() agent.Trust { return &s.trust }

// offer puts a reading where the loop looks. One that the loop has not taken yet is replaced, but
// what it desired is not lost.
func (s *Source) offer(r desired.Reading) {
	s.log.Debug("read", zap.String("state", string(r.State)), zap.String("reason", r.Reason),
		zap.Bool("desired", r.Desired != nil))
	select {
	case old := <-s.readings:
		if r.Desired == nil {
			r.Desired = old.Desired
		}
	default:
	}
	s.readings <- r // there is room: nobody else sends
}

// input is what was read from one of the two sources.
type input struct {
	watch.Reading
	projector watch.Projector
	projected *watch.Object
	desired   *plan.Desired // nil until it was read
}

// update learns what one source says, and gives what is known of both. If the source's object is a new
// one, it is projected onto the host's files.
func (s *Source) update(in *input, r watch.Reading) desired.Reading {
	in.Reading = r
	out := desired.Reading{State: report.SourceState(cmp.Or(s.object.State, watch.Connecting)), Reason: s.object.Reason,
		Time: desired.ServerTime{Date: s.object.ServerDate, Seen: s.object.SeenAt}}
	if s.configMap.State != "" {
		out.ConfigMap = &report.Source{State: report.SourceState(s.configMap.State), Reason: s.configMap.Reason}
	}
	if r.Object != nil && r.Object != in.projected {
		d := in.projector.Project(*r.Object, s.settings.Policy.Files, time.Now())
		d.Verified = true // the client refuses servers that it cannot verify
		in.desired, in.projected = &d, r.Object
		out.Desired = s.desired()
	}
	return out
}

// desired is what both sources ask for, as far as they were read.
func (s *Source) desired() *plan.Desired {
	d := plan.Desired{Verified: true, Partial: true}
	if s.object.desired != nil {
		d = *s.object.desired
	}
	if s.configMap.desired != nil {
		d = d.With(*s.configMap.desired)
	}
	return &d
}
