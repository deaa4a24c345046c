// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// HintAnnotation on the ControllerConfig announces where its cluster is going to be, in JSON:
//
//	{"server": "https://HOST:PORT", "certificateAuthorityData": "BASE64 OF PEM"}
//
// Without CAs those that are known now are meant.
const HintAnnotation = "node-cert-agent.io/cluster"

// hint is the last announcement that could be read.
type hint struct {
	Server string `json:"server"`
	CA     []byte `json:"certificateAuthorityData,omitempty"`
}

func parseHint(text []byte) (h hint, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(&h) != nil || d.Decode(&struct{}{}) != io.EOF {
		return hint{}, errors.New("is not the JSON object with server and certificateAuthorityData")
	}
	u, err := url.Parse(h.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return hint{}, errors.New("has a server that is not https://host[:port][/path]")
	}
	if len(h.CA) > 0 && !apiserver.HoldsCA(h.CA) {
		return hint{}, errors.New("has certificateAuthorityData without a CA")
	}
	return h, nil
}

// cluster is what the hint says of a cluster that was at from. Where the host pins CAs, the ControllerConfig's word
// counts for pinned ones only.
func (h hint) cluster(from apiserver.Cluster, p apiserver.Pins) (apiserver.Cluster, error) {
	to := from
	to.Server = h.Server
	if len(h.CA) > 0 {
		to.CA, to.Pinned, to.ServerName = h.CA, nil, ""
	}
	if len(p) == 0 || len(h.CA) == 0 {
		return to, nil
	}
	to.CA = p.Filter(h.CA)
	if len(to.CA) == 0 {
		return apiserver.Cluster{}, errors.New("has no CA with a pinned key")
	}
	return to, nil
}

// Hint says what the ControllerConfig's HintAnnotation holds now, or that there is none. It may be called at any
// time; the newest counts. A hint is kept as long as the ControllerConfig was last seen with it, and leads
// nowhere before the identity in use, and no other credential, is known at the announced cluster.
func (m *Manager) Hint(text string) {
	select {
	case <-m.hints:
	default:
	}
	m.hints <- text // there is room: nobody else sends
}

// setHint takes a hint up, durably. One that cannot be read changes nothing: the last one stays.
func (m *Manager) setHint(text string) {
	if !m.opt.FollowHint || text == m.migration.text {
		return
	}
	m.migration.text, m.credentials.polled = text, time.Time{}
	if text == "" {
		if m.reason == m.migration.note {
			m.reason = ""
		}
		m.migration.hint, m.migration.note = nil, ""
		if m.store.dropHint() != nil {
			m.migration.text = "?" // to be heard again
		}
		return
	}
	h, err := parseHint([]byte(text))
	if err == nil {
		err = m.store.keepHint([]byte(text))
	}
	if err != nil {
		m.record(audit.Refused, "the ControllerConfig's announcement of another cluster is not followed",
			audit.Field{Name: audit.Reason, Value: HintAnnotation + " " + err.Error()})
		return
	}
	m.migration.hint = &h
	m.record(audit.ClusterAnnounced, "the ControllerConfig announces that its cluster will be at "+h.Server)
}

// loadHint takes up the hint of an earlier run. What cannot be read is forgotten: the ControllerConfig says it again.
func (m *Manager) loadHint() error {
	data, err := m.store.read(hintFile)
	if err != nil || data == nil {
		return err
	}
	h, err := parseHint(data)
	if err != nil || !m.opt.FollowHint {
		return m.store.dropHint()
	}
	m.migration.text, m.migration.hint = string(data), &h
	return nil
}
