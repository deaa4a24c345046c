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
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Names of the files in the runtime directory.
const (
	StatusFile  = "status.json"
	MetricsFile = "metrics.prom"
)

// Status is everything that is shown. It is the format of status.json; times are RFC 3339 in UTC.
type Status struct {
	Version string `json:"version"`
	Node    string `json:"node,omitempty"`
	// State is the state of following the object, and Reason the fact behind it.
	State  string      `json:"state"`
	Reason string      `json:"reason,omitempty"`
	Since  time.Time   `json:"since,omitzero"`
	Object plan.Object `json:"object,omitzero"`
	// Identity is the agent's own; nil if something else maintains it.
	Identity *Identity `json:"identity,omitempty"`
	// Synced is when the host last was as the object wants it, refusals aside.
	Synced time.Time `json:"synced,omitzero"`
	// Trouble is why the last pass could not be finished.
	Trouble string `json:"trouble,omitempty"`
	Files   []File `json:"files,omitempty"`
	Units   []Unit `json:"units,omitempty"`
	// Refused and Kept are asked for and not done, and no longer asked for and still there.
	Refused []plan.Refusal `json:"refused,omitempty"`
	Kept    []plan.Refusal `json:"kept,omitempty"`
	// Writes counts files written since the agent started, Actions unit actions by outcome.
	Writes  uint64        `json:"writes"`
	Actions ActionCounter `json:"actions"`
}

// Identity is as whom the agent speaks to the API server, and how it stands with that.
type Identity struct {
	// State is no credential, requesting, pending, proving, active, renewing or suspect.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
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
	Paid   uint64 `json:"paid"`
	Failed uint64 `json:"failed"`
}

// File is one managed file.
type File struct {
	plan.Key
	Path   string      `json:"path"`
	Digest plan.Digest `json:"sha256,omitzero"`
	// State is "in place", or "pending" until the file is as the object wants it.
	State        string `json:"state"`
	Certificates int    `json:"certificates"`
	// Fingerprints are the SHA-256 of each certificate's DER.
	Fingerprints []string  `json:"fingerprints,omitempty"`
	Expires      time.Time `json:"expires,omitzero"`
	Warnings     []string  `json:"warnings,omitempty"`
}

// Unit is one entry of the allowlist.
type Unit struct {
	Name string    `json:"name"`
	Verb plan.Verb `json:"verb"`
	// State is loaded, owed, running, failed, unknown or "not running".
	State  string    `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Paid   time.Time `json:"paid,omitzero"`
}

// Reporter publishes Status values. It is not safe for concurrent use.
type Reporter struct {
	write   func(name string, data []byte) error
	notify  func(state string) error
	status  []byte
	metrics []byte
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
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := r.publish(StatusFile, &r.status, append(b, '\n')); err != nil {
		return err
	}
	var m bytes.Buffer
	s.writeMetrics(&m)
	return r.publish(MetricsFile, &r.metrics, m.Bytes())
}

func (r *Reporter) publish(name string, last *[]byte, data []byte) error {
	if bytes.Equal(*last, data) {
		return nil
	}
	if err := r.write(name, data); err != nil {
		return err
	}
	*last = data
	return nil
}

// Sentence is the STATUS= line: what a person sees in systemctl status.
func (s Status) Sentence() string {
	line := s.State
	if s.Reason != "" {
		line += ": " + s.Reason
	}
	if i := s.Identity; i != nil && i.Serial != "" && (i.State != "active" || i.Reason != "") {
		line += strings.TrimSuffix("; identity "+i.State+": "+i.Reason, ": ")
	}
	if v := s.Object.ResourceVersion; v != "" {
		line += fmt.Sprintf("; %d files from version %s", len(s.Files), plan.Printable(v))
	}
	if s.Trouble != "" {
		line += "; trouble: " + s.Trouble
	}
	if n := len(s.Refused); n > 0 {
		line += fmt.Sprintf("; %d refused", n)
	}
	if n := s.count("owed") + s.count("failed") + s.count("unknown"); n > 0 {
		line += fmt.Sprintf("; %d unit actions owed", n)
	}
	return line
}

func (s Status) count(state string) (n int) {
	for _, u := range s.Units {
		if u.State == state {
			n++
		}
	}
	return n
}

// writeMetrics renders s in the text format. Names and meanings are listed in docs/usage/metrics.md.
func (s Status) writeMetrics(w io.Writer) {
	gauge := func(name string, v uint64) { metrics.WriteGaugeUint64(w, name, v) }
	following := uint64(0)
	if s.State == "following" {
		following = 1
	}
	gauge("node_cert_agent_following", following)
	if i := s.Identity; i != nil {
		gauge("node_cert_agent_identity_expiry_timestamp_seconds", seconds(i.Expires))
		gauge("node_cert_agent_identity_renewal_timestamp_seconds", seconds(i.Renew))
		healthy := uint64(0)
		if i.State == "active" || i.State == "renewing" {
			healthy = 1
		}
		gauge("node_cert_agent_identity_healthy", healthy)
	}
	gauge("node_cert_agent_synced_timestamp_seconds", seconds(s.Synced))
	gauge("node_cert_agent_refused", uint64(len(s.Refused)))
	gauge("node_cert_agent_kept", uint64(len(s.Kept)))
	metrics.WriteCounterUint64(w, "node_cert_agent_file_writes_total", s.Writes)
	metrics.WriteCounterUint64(w, `node_cert_agent_unit_actions_total{result="paid"}`, s.Actions.Paid)
	metrics.WriteCounterUint64(w, `node_cert_agent_unit_actions_total{result="failed"}`, s.Actions.Failed)
	for _, f := range s.Files {
		labels := fmt.Sprintf("{row=%q,entry=%q}", f.Row, f.Name)
		gauge("node_cert_agent_file_certificates"+labels, uint64(f.Certificates))
		gauge("node_cert_agent_file_expiry_timestamp_seconds"+labels, seconds(f.Expires))
		gauge("node_cert_agent_file_warnings"+labels, uint64(len(f.Warnings)))
	}
	for _, u := range s.Units {
		owed := uint64(1)
		if u.State == "loaded" || u.State == "not running" {
			owed = 0
		}
		gauge(fmt.Sprintf("node_cert_agent_unit_owed{unit=%q}", u.Name), owed)
	}
}

// seconds is the Unix time; 0 stands for never.
func seconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(0, t.Unix()))
}
