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
	Spec stateSpec `json:"spec"`
}

type stateSpec struct {
	State     SourceState `json:"state"`
	Reason    string      `json:"reason,omitempty"`
	Heartbeat time.Time   `json:"heartbeat,omitzero"`
	Agent     struct {
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

// body is the object as JSON. Without a heartbeat it holds only what tells one state from another.
func body(s Status, node string, heartbeat time.Time) []byte {
	o := stateObject{APIVersion: "node-cert-agent.io/v1alpha1", Kind: "NodeCertificateState"}
	o.Metadata.Name = node
	o.Spec = stateSpec{State: s.State, Reason: cut(s.Reason), Heartbeat: heartbeat.UTC().Truncate(time.Second)}
	if i := s.Identity; i != nil && i.Serial != "" {
		o.Spec.Identity = &stateIdentity{Serial: i.Serial, PublicKey: i.PublicKey, Issued: i.Issued, Expires: i.Expires}
	}
	if s.Error != "" {
		o.Spec.Reason = cut(s.Error)
	}
	o.Spec.Agent.Version, o.Spec.Fields = s.Version, s.Fields
	if s.Error == "" {
		o.Spec.Synced = stateSynced{UID: printable.Text(s.ControllerConfig.UID),
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
		o.Spec.Files = append(o.Spec.Files, file)
		if e := o.Spec.EarliestExpiry; e.IsZero() || !f.Expires.IsZero() && f.Expires.Before(e) {
			o.Spec.EarliestExpiry = f.Expires
		}
	}
	for _, u := range s.Units {
		if !u.State.Settled() {
			o.Spec.Pending = append(o.Spec.Pending, statePending{Unit: u.Name, Verb: string(u.Verb), Reason: cut(u.Reason)})
		}
		if o.Spec.Breaker == nil && !u.BreakerOpened.IsZero() {
			o.Spec.Breaker = &stateBreaker{Unit: u.Name, Since: u.BreakerOpened.Truncate(time.Second), Reason: cut(u.Reason)}
		}
	}
	for _, h := range s.Held[:min(len(s.Held), maxHeld)] {
		o.Spec.Held = append(o.Spec.Held, stateHeld{Field: string(h.Field), Name: h.Name, Certificate: h.Fingerprint,
			Until: h.Until, Reason: cut(h.Reason)})
	}
	o.Spec.Counts.Files, o.Spec.Counts.Held, o.Spec.Counts.Pending = len(s.Files), len(s.Held), len(o.Spec.Pending)
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings, numbers and times always encode
	}
	return b
}

func cut(s string) string { return s[:min(len(s), maxReason)] }
