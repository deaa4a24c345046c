// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

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
