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
func (k *Keeper) Hint(text string) {
	select {
	case <-k.hints:
	default:
	}
	k.hints <- text // there is room: nobody else sends
}

// setHint takes a hint up, durably. One that cannot be read changes nothing: the last one stays.
func (k *Keeper) setHint(text string) {
	if !k.opt.FollowHint || text == k.migration.text {
		return
	}
	k.migration.text, k.credentials.polled = text, time.Time{}
	if text == "" {
		if k.reason == k.migration.note {
			k.reason = ""
		}
		k.migration.hint, k.migration.note = nil, ""
		if k.store.dropHint() != nil {
			k.migration.text = "?" // to be heard again
		}
		return
	}
	h, err := parseHint([]byte(text))
	if err == nil {
		err = k.store.keepHint([]byte(text))
	}
	if err != nil {
		k.tell(audit.Refused, "the ControllerConfig's announcement of another cluster is not followed",
			audit.Field{Name: audit.Reason, Value: HintAnnotation + " " + err.Error()})
		return
	}
	k.migration.hint = &h
	k.tell(audit.ClusterAnnounced, "the ControllerConfig announces that its cluster will be at "+h.Server)
}

// loadHint takes up the hint of an earlier run. What cannot be read is forgotten: the ControllerConfig says it again.
func (k *Keeper) loadHint() error {
	data, err := k.store.read(hintFile)
	if err != nil || data == nil {
		return err
	}
	h, err := parseHint(data)
	if err != nil || !k.opt.FollowHint {
		return k.store.dropHint()
	}
	k.migration.text, k.migration.hint = string(data), &h
	return nil
}
