// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Bounds of the kind's schema, packaging/kubernetes/crd.
const (
	maxReason = 256
	maxFiles  = 1024
	maxHeld   = 1024
)

type stateObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status *stateStatus `json:"status,omitempty"`
}

type stateStatus struct {
	Conditions []condition `json:"conditions,omitempty"`
	State      SourceState `json:"state"`
	Reason     string      `json:"reason,omitempty"`
	Heartbeat  time.Time   `json:"heartbeat,omitzero"`
	Agent      struct {
		Version string `json:"version,omitempty"`
	} `json:"agent"`
	Synced stateSynced `json:"synced,omitzero"`
	Counts struct {
		Files   int `json:"files"`
		Held    int `json:"held"`
		Pending int `json:"pending"`
	} `json:"counts"`
	EarliestExpiry time.Time      `json:"earliestExpiry,omitzero"`
	Fields         []plan.Field   `json:"fields,omitempty"`
	Files          []stateFile    `json:"files,omitempty"`
	Held           []stateHeld    `json:"held,omitempty"`
	Pending        []statePending `json:"pending,omitempty"`
	Breaker        *stateBreaker  `json:"breaker,omitempty"`
	Identity       *stateIdentity `json:"identity,omitempty"`
	Renewal        *stateRenewal  `json:"renewal,omitempty"`
}

type stateRenewal struct {
	UnrenewedNotAfter time.Time `json:"unrenewedNotAfter,omitzero"`
	EarliestNotAfter  time.Time `json:"earliestNotAfter,omitzero"`
	ObservedTime      time.Time `json:"observedTime,omitzero"`
}

type stateIdentity struct {
	Serial    string    `json:"serial"`
	PublicKey string    `json:"publicKey"`
	Issued    time.Time `json:"issued"`
	Expires   time.Time `json:"expires"`
}

type stateSynced struct {
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

type stateFile struct {
	Field          string      `json:"field"`
	Name           string      `json:"name"`
	SHA256         plan.Digest `json:"sha256,omitzero"`
	Certificates   []string    `json:"certificates,omitempty"`
	EarliestExpiry time.Time   `json:"earliestExpiry,omitzero"`
	// Use is left out while it may still change by itself.
	Use liveness.State `json:"use,omitempty"`
}

type stateHeld struct {
	Field       string    `json:"field"`
	Name        string    `json:"name,omitempty"`
	Certificate string    `json:"certificate,omitempty"`
	Until       time.Time `json:"until,omitzero"`
	Reason      string    `json:"reason,omitempty"`
}

type statePending struct {
	Unit   string `json:"unit"`
	Verb   string `json:"verb"`
	Reason string `json:"reason,omitempty"`
}

type stateBreaker struct {
	Unit   string    `json:"unit"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
}

// stateOf is the object. Without a heartbeat it holds only what tells one state from another. Its conditions have no
// times.
func stateOf(s Status, node string, heartbeat time.Time) stateObject {
	o := newStateObject(node)
	o.Status = &stateStatus{Conditions: conditions(s), State: s.State, Reason: cut(s.Reason),
		Heartbeat: heartbeat.UTC().Truncate(time.Second)}
	if i := s.Identity; i != nil && i.Serial != "" {
		o.Status.Identity = &stateIdentity{Serial: i.Serial, PublicKey: i.PublicKey, Issued: i.Issued, Expires: i.Expires}
	}
	if r := s.Renewal; r != nil {
		o.Status.Renewal = &stateRenewal{UnrenewedNotAfter: r.Unrenewed, EarliestNotAfter: r.Earliest}
		if !heartbeat.IsZero() {
			o.Status.Renewal.ObservedTime = r.Observed
		}
	}
	if s.Error != "" {
		o.Status.Reason = cut(s.Error)
	}
	o.Status.Agent.Version, o.Status.Fields = s.Version, s.Fields
	if s.Error == "" {
		o.Status.Synced = stateSynced{UID: printable.Text(s.ControllerConfig.UID),
			ResourceVersion: printable.Text(s.ControllerConfig.ResourceVersion)}
	}
	for _, f := range s.Files[:min(len(s.Files), maxFiles)] {
		file := stateFile{Field: string(f.Field), Name: f.Name, EarliestExpiry: f.Expires}
		if f.State == InPlace { // others take from it what this node has on its disk
			file.SHA256, file.Certificates = f.Digest, f.Fingerprints
		}
		if use := f.Use(); use != liveness.Waiting {
			file.Use = use
		}
		o.Status.Files = append(o.Status.Files, file)
		if e := o.Status.EarliestExpiry; e.IsZero() || !f.Expires.IsZero() && f.Expires.Before(e) {
			o.Status.EarliestExpiry = f.Expires
		}
	}
	for _, u := range s.Units {
		if !u.State.Settled() {
			o.Status.Pending = append(o.Status.Pending, statePending{Unit: u.Name, Verb: string(u.Verb), Reason: cut(u.Reason)})
		}
		if o.Status.Breaker == nil && !u.BreakerOpened.IsZero() {
			o.Status.Breaker = &stateBreaker{Unit: u.Name, Since: u.BreakerOpened.Truncate(time.Second), Reason: cut(u.Reason)}
		}
	}
	for _, h := range s.Held[:min(len(s.Held), maxHeld)] {
		o.Status.Held = append(o.Status.Held, stateHeld{Field: string(h.Field), Name: h.Name, Certificate: h.Fingerprint,
			Until: h.Until, Reason: cut(h.Reason)})
	}
	o.Status.Counts.Files, o.Status.Counts.Held, o.Status.Counts.Pending = len(s.Files), len(s.Held), len(o.Status.Pending)
	return o
}

func newStateObject(node string) (o stateObject) {
	o.APIVersion, o.Kind, o.Metadata.Name = "node-cert-agent.io/v1alpha1", "NodeCertificateState", node
	return o
}

func (o stateObject) encode() []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings, numbers and times always encode
	}
	return b
}

func cut(s string) string { return s[:min(len(s), maxReason)] }
