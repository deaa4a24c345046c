// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// HintAnnotation on the object announces where its cluster is going to be, in JSON:
//
//	{"server": "https://HOST:PORT", "certificateAuthorityData": "BASE64 OF PEM"}
//
// Without CAs those that are known now are meant.
const HintAnnotation = "node-cert-agent.io/cluster"

// announced is the name of the identity in use as somebody at the announced cluster.
const announced = "the present identity, at the announced cluster"

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

// cluster is what the hint says of a cluster that was at from. Where the host pins CAs, the object's word
// counts for pinned ones only.
func (h hint) cluster(from apiserver.Cluster, p apiserver.Pins) (apiserver.Cluster, error) {
	to := from
	if to.Server = h.Server; len(h.CA) > 0 {
		to.CA, to.Pinned, to.ServerName = h.CA, nil, ""
	}
	if len(p) == 0 || len(h.CA) == 0 {
		return to, nil
	}
	if to.CA = p.Filter(h.CA); len(to.CA) == 0 {
		return apiserver.Cluster{}, errors.New("has no CA with a pinned key")
	}
	return to, nil
}

// Hint says what the object's HintAnnotation holds now, or that there is none. It may be called at any
// time; the newest counts. A hint is kept as long as the object was last seen with it, and leads
// nowhere before the identity in use, and no other credential, is known at the announced cluster.
func (k *Keeper) Hint(text string) {
	select {
	case <-k.hints:
	default:
	}
	k.hints <- text // there is room: nobody else sends
}

// heed takes a hint up, durably. One that cannot be read changes nothing: the last one stays.
func (k *Keeper) heed(text string) {
	if !k.opt.FollowHint || text == k.heard {
		return
	}
	k.heard, k.looked = text, time.Time{}
	if text == "" {
		if k.reason == k.remark {
			k.reason = ""
		}
		if k.hint, k.remark = nil, ""; k.store.dropHint() != nil {
			k.heard = "?" // to be heard again
		}
		return
	}
	h, err := parseHint([]byte(text))
	if err == nil {
		err = k.store.keepHint([]byte(text))
	}
	if err != nil {
		k.tell(audit.Refused, "the object's announcement of another cluster is not followed", audit.Field{Name: audit.Reason, Value: HintAnnotation + " " + err.Error()})
		return
	}
	k.hint = &h
	k.tell(audit.ClusterAnnounced, "the object announces that its cluster will be at "+h.Server)
}

// recall takes up the hint of an earlier run. What cannot be read is forgotten: the object says it again.
func (k *Keeper) recall() error {
	data, err := k.store.read(hintFile)
	if err != nil || data == nil {
		return err
	}
	h, err := parseHint(data)
	if err != nil || !k.opt.FollowHint {
		return k.store.dropHint()
	}
	k.heard, k.hint = string(data), &h
	return nil
}

// ahead is the identity as somebody who may ask at the announced cluster; nil if there is none, or if it
// is where we are. It has a certificate and no token: what is sent there cannot be used by who gets it.
func (k *Keeper) ahead() *credential {
	g := k.current
	if g == nil {
		g = k.previous
	}
	if k.hint == nil || g == nil {
		return nil
	}
	to, err := k.hint.cluster(g.Cluster, k.pins)
	if err != nil {
		k.remark = "the announced cluster " + err.Error()
		return nil
	}
	if to.Same(g.Cluster) {
		k.remark = ""
		return nil
	}
	content := g.leaf.SerialNumber.Text(16) + "\x00" + k.heard
	if c := k.ladder.find(announced, content); c != nil {
		return c
	}
	there := *g
	there.Cluster = to
	conf, err := there.config()
	if err != nil {
		return nil
	}
	l, err := k.connect(conf)
	if err != nil {
		return nil
	}
	return &credential{name: announced, content: content, config: conf, link: l, announced: true}
}

// welcome asks the announced cluster whether it knows us, before anything is asked for there. If it does
// not it is left alone for a time, and the identity goes on where it is.
func (k *Keeper) welcome(ctx context.Context, c *credential) bool {
	a := k.api.whoami(ctx, c.link)
	wait := k.opt.Times.RetryMax
	switch {
	case a.verdict() == accepted && a.user == k.user():
		k.remark = ""
		return true
	case a.verdict() == accepted:
		a.reason = fmt.Sprintf("the server takes our certificate for %.128q", a.user)
		fallthrough
	case a.status != 0:
		wait = k.opt.Times.Refused
	}
	c.refused, c.why = k.opt.Clock.Now().Add(max(wait, a.after)), a.reason
	k.remark = "the announced cluster does not take us yet: " + a.reason
	return false
}

// returns reports whether the hint leads back to where we have just come from. Two clusters that
// announce each other would else be visited in turn without a pause.
func (k *Keeper) returns(to apiserver.Cluster) bool {
	return k.previous != nil && to.Same(k.previous.Cluster) && k.opt.Clock.Now().Before(k.current.Received.Add(k.opt.Times.Glance))
}
