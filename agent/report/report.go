// SPDX-License-Identifier: Apache-2.0

// Package report shows what the agent knows: a STATUS= sentence for systemctl status, status.json for
// programs and the status command, and metrics.prom for node_exporter's textfile collector. It also
// speaks the rest of sd_notify(3): readiness and the watchdog.
//
// Files are written only when their content changed, hold no secrets, and stay over a stop of the
// service, so that the last word of a dead agent can be read. The package decides nothing.
//
// Sources: sd_notify(3), https://prometheus.io/docs/instrumenting/exposition_formats/.
package report

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// apiVersion stands in status.json, so that a later format can be told from this one.
const apiVersion = "status.node-cert-agent.io/v1alpha1"

// Names of the files in the runtime directory.
const (
	StatusFile  = "status.json"
	MetricsFile = "metrics.prom"
)

// Status is everything that is shown. It is the format of status.json; times are RFC 3339 in UTC.
type Status struct {
	// APIVersion is set by Publish.
	APIVersion string `json:"apiVersion"`
	Version    string `json:"version"`
	Node       string `json:"node,omitempty"`
	// State is the state of following the ControllerConfig, and Reason the fact behind it.
	State            SourceState           `json:"state"`
	Reason           string                `json:"reason,omitempty"`
	Since            time.Time             `json:"since,omitzero"`
	ControllerConfig plan.ControllerConfig `json:"controllerConfig,omitzero"`
	// ConfigMap is the second source; nil if no field takes from it.
	ConfigMap *Source `json:"configMap,omitempty"`
	// Identity is the agent's own; nil if something else maintains it.
	Identity *Identity `json:"identity,omitempty"`
	// Synced is when the host last was as the ControllerConfig wants it, refusals aside.
	Synced time.Time `json:"synced,omitzero"`
	// Error is why the last reconcile could not be finished.
	Error string `json:"error,omitempty"`
	// Fields are those of the ControllerConfig that this host takes, for the NodeCertificateState only.
	Fields []plan.Field `json:"-"`
	Files  []File       `json:"files,omitempty"`
	Units  []Unit       `json:"units,omitempty"`
	// Refused and Retained are asked for and not done, and no longer asked for and still there.
	Refused  []plan.Refusal `json:"refused,omitempty"`
	Retained []plan.Refusal `json:"retained,omitempty"`
	// Conflicts are the files that somebody else keeps changing.
	Conflicts []Conflict `json:"conflicts,omitempty"`
	// Held are removals of trust that wait.
	Held []Held `json:"held,omitempty"`
	// Paused is the reason for which nothing is taken away and no unit acted on for now.
	Paused string `json:"paused,omitempty"`
	// Override is what an operator of this host applied by hand; nil if nothing.
	Override *Override `json:"override,omitempty"`
	// Renewal is when the host's own control plane ends; nil where nobody looks after that.
	Renewal *Renewal `json:"renewal,omitempty"`
	// Writes counts files written since the agent started, Actions unit actions by outcome.
	Writes  uint64        `json:"writes"`
	Actions ActionCounter `json:"actions"`
}

// Renewal is when the certificates with keys of a control plane end, as node-cert-agent-renew.service found out.
type Renewal struct {
	// Unrenewed is the first end of one that nobody on the host will renew; zero if all are renewed.
	Unrenewed time.Time `json:"unrenewed,omitzero"`
	// Earliest is the first end of any; zero if there is none.
	Earliest time.Time `json:"earliest,omitzero"`
	// Observed is when that was found out. It is not in the file, which would change for nothing else.
	Observed time.Time `json:"-"`
}

// Source is how following something stands.
type Source struct {
	State  SourceState `json:"state"`
	Reason string      `json:"reason,omitempty"`
}

// Identity is as whom the agent speaks to the API server, and how it stands with that.
type Identity struct {
	// State is no credential, requesting, pending, proving, active, renewing or suspect.
	State  IdentityState `json:"state"`
	Reason string        `json:"reason,omitempty"`
	// Serial is the certificate's serial number in hexadecimal; Expires is until when this host may be
	// off, and Renew when the next certificate is asked for. They are empty without a certificate.
	Serial string `json:"serial,omitempty"`
	// PublicKey is the SHA-256 of the certificate's SubjectPublicKeyInfo in hexadecimal.
	PublicKey string    `json:"publicKey,omitempty"`
	Issued    time.Time `json:"issued,omitzero"`
	Expires   time.Time `json:"expires,omitzero"`
	Renew     time.Time `json:"renew,omitzero"`
}

// ActionCounter counts unit actions since the agent started.
type ActionCounter struct {
	Succeeded uint64 `json:"succeeded"`
	Failed    uint64 `json:"failed"`
}

// File is one managed file.
type File struct {
	plan.Key
	Path         string      `json:"path"`
	Digest       plan.Digest `json:"sha256,omitzero"`
	State        FileState   `json:"state"`
	Certificates int         `json:"certificates"`
	// Fingerprints are the SHA-256 of each certificate's DER.
	Fingerprints []string  `json:"fingerprints,omitempty"`
	Expires      time.Time `json:"expires,omitzero"`
	Warnings     []string  `json:"warnings,omitempty"`
	// Consumers are those who are asked whether they use the file.
	Consumers []Consumer `json:"consumers,omitempty"`
}

// Use is how the consumers of the file stand with it, by the one that stands worst; empty if there
// are none.
func (f File) Use() liveness.State {
	for _, state := range []liveness.State{liveness.Stale, liveness.Waiting, liveness.Unknown, liveness.Live} {
		if slices.ContainsFunc(f.Consumers, func(c Consumer) bool { return c.State == state }) {
			return state
		}
	}
	return ""
}

// Consumer is one who uses a file, and whether it was seen to.
type Consumer struct {
	Kind    liveness.Kind `json:"kind"`
	Address string        `json:"address"`
	// State is live, "waiting", stale or unknown.
	State  liveness.State `json:"state"`
	Reason string         `json:"reason,omitempty"`
	Since  time.Time      `json:"since,omitzero"`
}

// Override is content that was applied by hand.
type Override struct {
	ID     string        `json:"id"`
	Source string        `json:"source"`
	At     time.Time     `json:"at"`
	State  OverrideState `json:"state"`
}

// Conflict is a file that somebody else keeps changing, and how often it was repaired lately.
type Conflict struct {
	plan.Key
	Path    string `json:"path"`
	Repairs int    `json:"repairs"`
}

// Held is one removal of trust that waits: of a certificate, or without a fingerprint of a whole file.
type Held struct {
	plan.Key
	Fingerprint string `json:"fingerprint,omitempty"`
	Subject     string `json:"subject,omitempty"`
	// Until is when it goes if nothing else is in the way; zero if that is not only a matter of time.
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason"`
}

// Unit is one entry of the allowlist.
type Unit struct {
	Name   string        `json:"name"`
	Verb   unitplan.Verb `json:"verb"`
	State  UnitState     `json:"state"`
	Reason string        `json:"reason,omitempty"`
	Done   time.Time     `json:"done,omitzero"`
	// BreakerOpened is when the breaker opened; zero while it is closed.
	BreakerOpened time.Time `json:"breakerOpened,omitzero"`
}

// Reporter publishes Status values. It is not safe for concurrent use.
type Reporter struct {
	write   func(name string, data []byte) error
	notify  func(state string) error
	status  [sha256.Size]byte
	metrics [sha256.Size]byte
	line    string
}

// New reports through write, which replaces a file of the runtime directory atomically, and, if
// systemd is there, through the notification socket in the environment.
func New(write func(name string, data []byte) error, systemd bool) *Reporter {
	r := &Reporter{write: write, notify: func(string) error { return nil }}
	if systemd {
		r.notify = func(state string) error { _, err := daemon.SdNotify(false, state); return err }
	}
	return r
}

// Ready says READY=1.
func (r *Reporter) Ready() error { return r.notify(daemon.SdNotifyReady) }

// Alive answers the watchdog of systemd.service(5).
func (r *Reporter) Alive() error { return r.notify(daemon.SdNotifyWatchdog) }

// Publish shows s. What did not change since the last call is not written again.
func (r *Reporter) Publish(s Status) error {
	if line := s.Sentence(); line != r.line {
		if err := r.notify("STATUS=" + line); err != nil {
			return err
		}
		r.line = line
	}
	s.APIVersion = apiVersion
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := r.publish(StatusFile, &r.status, append(b, '\n')); err != nil {
		return err
	}
	return r.publish(MetricsFile, &r.metrics, s.metrics())
}

// publish keeps the digest, because the text about an object at its limits is half a megabyte.
func (r *Reporter) publish(name string, last *[sha256.Size]byte, data []byte) error {
	now := sha256.Sum256(data)
	if *last == now {
		return nil
	}
	if err := r.write(name, data); err != nil {
		return err
	}
	*last = now
	return nil
}

// Sentence is the STATUS= line: what a person sees in systemctl status.
func (s Status) Sentence() string {
	line := string(s.State)
	if s.Reason != "" {
		line += ": " + s.Reason
	}
	if i := s.Identity; i != nil && i.Serial != "" && (i.State != Active || i.Reason != "") {
		line += strings.TrimSuffix("; identity "+string(i.State)+": "+i.Reason, ": ")
	}
	if c := s.ConfigMap; c != nil && c.State != Following {
		line += strings.TrimSuffix("; the ConfigMap: "+string(c.State)+": "+c.Reason, ": ")
	}
	if v := s.ControllerConfig.ResourceVersion; v != "" {
		line += fmt.Sprintf("; %d files from version %s", len(s.Files), printable.Text(v))
	}
	if s.Error != "" {
		line += "; error: " + s.Error
	}
	if n := len(s.Refused); n > 0 {
		line += fmt.Sprintf("; %d refused", n)
	}
	if n := len(s.Conflicts); n > 0 {
		line += fmt.Sprintf("; %d files that somebody else keeps changing", n)
	}
	stale := 0
	for _, f := range s.Files {
		if f.Use() == liveness.Stale {
			stale++
		}
	}
	if stale > 0 {
		line += fmt.Sprintf("; %d files not in use", stale)
	}
	if n := len(s.Held); n > 0 {
		line += fmt.Sprintf("; %d removals held", n)
	}
	if o := s.Override; o != nil && o.State == InForce {
		line += "; local override: " + o.Source
	}
	if s.Paused != "" {
		line += "; paused: " + s.Paused
	}
	pending := 0
	for _, u := range s.Units {
		switch {
		case !u.BreakerOpened.IsZero():
			line += fmt.Sprintf("; %s %s fails again and again", u.Verb, u.Name)
		case u.State == Refused:
			line += fmt.Sprintf("; %s %s refused", u.Verb, u.Name)
		case !u.State.Settled() && u.State != Running:
			pending++
		}
	}
	if pending > 0 {
		line += fmt.Sprintf("; %d unit actions pending", pending)
	}
	return line
}

// Acting tells whether a unit action is pending or under way, rather than stuck.
func (s Status) Acting() bool {
	return slices.ContainsFunc(s.Units, func(u Unit) bool { return u.State == UnitPending || u.State == Running })
}

// HasApplied tells whether the agent has taken up what was applied by hand under this ID.
func (s Status) HasApplied(id string) bool { return s.Override != nil && s.Override.ID == id }

// SourceState is how following something goes, in a word or two. Those who follow own the words; only one of them
// is told from the others here.
type SourceState string

// Following says that it was read, and that changes are seen at once.
const Following SourceState = "following"

// IdentityState is how it stands with the agent's own identity, in the words of package identity.
type IdentityState string

// An identity is active if there is a certificate and it works, and renewing while it also asks for the next one.
const (
	Active   IdentityState = "active"
	Renewing IdentityState = "renewing"
)

// FileState is how it stands with a managed file.
type FileState string

// A file is in place, or pending until it is as the ControllerConfig wants it.
const (
	InPlace FileState = "in place"
	Pending FileState = "pending"
)

// OverrideState is how it stands with what was applied by hand.
type OverrideState string

// What was applied counts, or the ControllerConfig asked for something else since.
const (
	InForce   OverrideState = "in force"
	Overtaken OverrideState = "overtaken by the ControllerConfig"
)

// UnitState is how it stands with what a unit has loaded.
type UnitState string

// A unit has loaded what is on disk; has to, and will; has to, and may not while the host is paused; its job is under
// way, or takes too long; failed, and is tried again; failed too often, and is tried rarely; may not be acted on,
// because that would act on units that nobody allowed; nobody can say; does not run.
const (
	UpToDate    UnitState = "up to date"
	UnitPending UnitState = "pending"
	Paused      UnitState = "paused"
	Running     UnitState = "running"
	Overdue     UnitState = "overdue"
	Failed      UnitState = "failed"
	BreakerOpen UnitState = "breaker open"
	Refused     UnitState = "refused"
	Unknown     UnitState = "unknown"
	NotRunning  UnitState = "not running"
)

// Settled tells whether the unit has nothing to load.
func (s UnitState) Settled() bool { return s == UpToDate || s == NotRunning }
