// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
)

// Exposition is a text in the format of Prometheus: families of samples, each below its HELP and TYPE.
type Exposition struct {
	text   bytes.Buffer
	family string
}

// Gauge begins a family whose values go up and down; its name follows ours.
func (e *Exposition) Gauge(name, help string) { e.begin(name, "gauge", help) }

// Counter begins a family whose values only go up.
func (e *Exposition) Counter(name, help string) { e.begin(name, "counter", help) }

// Bytes is the text so far.
func (e *Exposition) Bytes() []byte { return e.text.Bytes() }

func (e *Exposition) begin(name, kind, help string) {
	e.family = "node_cert_agent_" + name
	fmt.Fprintf(&e.text, "# HELP %s %s\n# TYPE %s %s\n", e.family, help, e.family, kind)
}

// labelValue escapes what the format says, and nothing else: %q also writes \x07 and \u200b, which no parser takes.
var labelValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// Add gives the family a sample; labels are names and values in turn.
func (e *Exposition) Add(v uint64, labels ...string) {
	e.text.WriteString(e.family)
	between, end := "{", ""
	for i := 0; i < len(labels); i += 2 {
		e.text.WriteString(between + labels[i] + `="` + labelValue.Replace(labels[i+1]) + `"`)
		between, end = ",", "}"
	}
	fmt.Fprintf(&e.text, "%s %d\n", end, v)
}

// metrics renders s. docs/usage/metrics.md lists the same names, kinds and meanings.
func (s Status) metrics() []byte {
	e := &Exposition{}
	e.Gauge("following", "1 if the ControllerConfig is being followed, 0 in every other state")
	e.Add(Truth(s.State == Following))
	if c := s.ConfigMap; c != nil {
		e.Gauge("configmap_following", "the same for the ConfigMap that feeds kubeconfigs")
		e.Add(Truth(c.State == Following))
	}
	if i := s.Identity; i != nil {
		e.Gauge("identity_expiry_timestamp_seconds", "when the agent's own certificate ends")
		e.Add(Seconds(i.Expires))
		e.Gauge("identity_renewal_timestamp_seconds", "when the next one is asked for")
		e.Add(Seconds(i.Renew))
		e.Gauge("identity_healthy", "1 if the identity is active or being renewed")
		e.Add(Truth(i.State == "active" || i.State == "renewing"))
	}
	e.Gauge("synced_timestamp_seconds",
		"when the host last was as the ControllerConfig wants it, refusals aside; 0 for never")
	e.Add(Seconds(s.Synced))
	e.Gauge("refused", "fields and entries that are asked for, and invalid or against policy")
	e.Add(uint64(len(s.Refused)))
	e.Gauge("retained", "files that are no longer asked for, and stay")
	e.Add(uint64(len(s.Retained)))
	e.Gauge("conflicts", "files that somebody else keeps changing, and that are therefore repaired once a minute only")
	e.Add(uint64(len(s.Conflicts)))
	e.Gauge("held", "removals of trust that wait: certificates, and files of registries that are no longer listed")
	e.Add(uint64(len(s.Held)))
	e.Gauge("paused", "1 while removals and unit actions are paused")
	e.Add(Truth(s.Paused != ""))
	e.Counter("file_writes_total", "files written since the agent started")
	e.Add(s.Writes)
	e.Counter("unit_actions_total", "actions on units since the agent started")
	e.Add(s.Actions.Succeeded, "result", "success")
	e.Add(s.Actions.Failed, "result", "failure")
	s.fileMetrics(e)
	s.unitMetrics(e)
	return e.Bytes()
}

func (s Status) fileMetrics(e *Exposition) {
	each := func(value func(File) uint64) {
		for f := range s.bundles() {
			e.Add(value(f), "field", string(f.Field), "entry", f.Name)
		}
	}
	e.Gauge("file_certificates", "certificates in the published bundle of a file")
	each(func(f File) uint64 { return uint64(f.Certificates) })
	e.Gauge("file_expiry_timestamp_seconds", "when the first of them expires")
	each(func(f File) uint64 { return Seconds(f.Expires) })
	e.Gauge("file_warnings", "what is questionable about the bundle")
	each(func(f File) uint64 { return uint64(len(f.Warnings)) })

	used := func(state liveness.State) {
		for f := range s.bundles() {
			for _, c := range f.Consumers {
				e.Add(Truth(c.State == state), "field", string(f.Field), "kind", string(c.Kind), "address", c.Address)
			}
		}
	}
	e.Gauge("consumer_live", "1 if the consumer was seen to use the file")
	used(liveness.Live)
	e.Gauge("consumer_stale", "1 if it still does not")
	used(liveness.Stale)
}

// bundles are the files with certificates: not a pull secret, whose expiry of 0 would look like one long past.
func (s Status) bundles() iter.Seq[File] {
	return func(yield func(File) bool) {
		for _, f := range s.Files {
			if f.Certificates > 0 && !yield(f) {
				return
			}
		}
	}
}

func (s Status) unitMetrics(e *Exposition) {
	e.Gauge("unit_action_pending", "1 if the unit has not loaded what is on disk, or nobody knows")
	for _, u := range s.Units {
		e.Add(Truth(!u.State.Settled()), "unit", u.Name)
	}
	e.Gauge("unit_breaker_open", "1 if the unit's action failed five times in a row and is now tried rarely")
	for _, u := range s.Units {
		e.Add(Truth(!u.BreakerOpened.IsZero()), "unit", u.Name)
	}
}

// Truth is 1 or 0.
func Truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Seconds is the Unix time; 0 stands for never.
func Seconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(0, t.Unix()))
}
