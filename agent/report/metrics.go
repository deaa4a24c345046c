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

// exposition is a text in the format of Prometheus: families of samples, each below its HELP and TYPE.
type exposition struct {
	text   bytes.Buffer
	family string
}

func (e *exposition) gauge(name, help string)   { e.begin(name, "gauge", help) }
func (e *exposition) counter(name, help string) { e.begin(name, "counter", help) }

func (e *exposition) begin(name, kind, help string) {
	e.family = "node_cert_agent_" + name
	fmt.Fprintf(&e.text, "# HELP %s %s\n# TYPE %s %s\n", e.family, help, e.family, kind)
}

// labelValue escapes what the format says, and nothing else: %q also writes \x07 and \u200b, which no parser takes.
var labelValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// add gives the family a sample; labels are names and values in turn.
func (e *exposition) add(v uint64, labels ...string) {
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
	e := &exposition{}
	e.gauge("following", "1 if the ControllerConfig is being followed, 0 in every other state")
	e.add(truth(s.State == Following))
	if c := s.ConfigMap; c != nil {
		e.gauge("configmap_following", "the same for the ConfigMap that feeds kubeconfigs")
		e.add(truth(c.State == Following))
	}
	if i := s.Identity; i != nil {
		e.gauge("identity_expiry_timestamp_seconds", "when the agent's own certificate ends")
		e.add(seconds(i.Expires))
		e.gauge("identity_renewal_timestamp_seconds", "when the next one is asked for")
		e.add(seconds(i.Renew))
		e.gauge("identity_healthy", "1 if the identity is active or being renewed")
		e.add(truth(i.State == "active" || i.State == "renewing"))
	}
	e.gauge("synced_timestamp_seconds",
		"when the host last was as the ControllerConfig wants it, refusals aside; 0 for never")
	e.add(seconds(s.Synced))
	e.gauge("refused", "fields and entries that are asked for, and invalid or against policy")
	e.add(uint64(len(s.Refused)))
	e.gauge("retained", "files that are no longer asked for, and stay")
	e.add(uint64(len(s.Retained)))
	e.gauge("conflicts", "files that somebody else keeps changing, and that are therefore repaired once a minute only")
	e.add(uint64(len(s.Conflicts)))
	e.gauge("held", "removals of trust that wait: certificates, and files of registries that are no longer listed")
	e.add(uint64(len(s.Held)))
	e.gauge("paused", "1 while removals and unit actions are paused")
	e.add(truth(s.Paused != ""))
	e.counter("file_writes_total", "files written since the agent started")
	e.add(s.Writes)
	e.counter("unit_actions_total", "actions on units since the agent started")
	e.add(s.Actions.Succeeded, "result", "success")
	e.add(s.Actions.Failed, "result", "failure")
	s.fileMetrics(e)
	s.unitMetrics(e)
	return e.text.Bytes()
}

func (s Status) fileMetrics(e *exposition) {
	each := func(value func(File) uint64) {
		for f := range s.bundles() {
			e.add(value(f), "field", string(f.Field), "entry", f.Name)
		}
	}
	e.gauge("file_certificates", "certificates in the published bundle of a file")
	each(func(f File) uint64 { return uint64(f.Certificates) })
	e.gauge("file_expiry_timestamp_seconds", "when the first of them expires")
	each(func(f File) uint64 { return seconds(f.Expires) })
	e.gauge("file_warnings", "what is questionable about the bundle")
	each(func(f File) uint64 { return uint64(len(f.Warnings)) })

	used := func(state liveness.State) {
		for f := range s.bundles() {
			for _, c := range f.Consumers {
				e.add(truth(c.State == state), "field", string(f.Field), "kind", string(c.Kind), "address", c.Address)
			}
		}
	}
	e.gauge("consumer_live", "1 if the consumer was seen to use the file")
	used(liveness.Live)
	e.gauge("consumer_stale", "1 if it still does not")
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

func (s Status) unitMetrics(e *exposition) {
	e.gauge("unit_action_pending", "1 if the unit has not loaded what is on disk, or nobody knows")
	for _, u := range s.Units {
		e.add(truth(!u.State.Settled()), "unit", u.Name)
	}
	e.gauge("unit_breaker_open", "1 if the unit's action failed five times in a row and is now tried rarely")
	for _, u := range s.Units {
		e.add(truth(!u.BreakerOpened.IsZero()), "unit", u.Name)
	}
}

// truth is 1 or 0.
func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// seconds is the Unix time; 0 stands for never.
func seconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(0, t.Unix()))
}
