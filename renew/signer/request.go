// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/renew/issue"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// requested is what a host keeps of a request until it is answered: in the file requests/PAIR.json of the state
// directory, for root only.
type requested struct {
	// Leaf is the SHA-256 of the certificate that it is to follow.
	Leaf    string `json:"leaf"`
	Request []byte `json:"request"`
	Key     []byte `json:"key"`
}

func requestFile(f pair.Facts) string { return path.Join("requests", FilesOf(f).ID+".json") }

// asking says which pair a request is about, whose successor another host makes.
func (h *handler) asking(who frame.Peer, q Change) (f pair.Facts, p Policy, err error) {
	if f, p, err = h.checked(who, q); err != nil {
		return f, p, err
	}
	switch {
	case who.UID != 0 && !p.throughEtcd():
		err = refuse("only root may ask other hosts, unless renewal.throughEtcd is set")
	case !pair.Judge(f, nil, p.Policy, h.Now()).Requestable:
		err = refuse("%s is not for another host to renew", f.Name)
	}
	return f, p, err
}

// throughEtcd tells whether the service may ask for other hosts and answer them.
func (p Policy) throughEtcd() bool { return p.Mode == pair.ModeRenew && p.ThroughEtcd }

// request gives the request for the successor of a pair. It is made once for each certificate, with its key.
func (h *handler) request(who frame.Peer, q Change) ([]byte, error) {
	f, p, err := h.asking(who, q)
	if err != nil {
		return nil, err
	}
	if !f.Due(p.Policy, h.Now()) && !q.Force {
		return nil, refuse("%s is not due: it ends at %s", f.Name, stamp(f.Leaf.NotAfter))
	}
	if kept, err := h.requested(f); err == nil {
		return kept.Request, nil
	}
	old, err := h.Replacer.Read(FilesOf(f))
	if err != nil {
		return nil, err
	}
	r, key, err := issue.MakeRequest(issue.Pair{Certificate: old.Certificate, Key: old.Key}, p.ReuseKey, h.Random)
	if err != nil {
		return nil, refused(f.Name, err)
	}
	text, err := json.Marshal(requested{Leaf: f.Leaf.SHA256, Request: r.Text(), Key: key.Reveal()})
	if err != nil {
		return nil, errors.New("the request cannot be encoded") // the error could hold what was encoded
	}
	fmt.Fprintf(h.log, "<5>signer requests: pair=%q path=%q before=%s ends=%s uid=%d pid=%d\n", f.Name, f.Cert,
		f.Leaf.SHA256, stamp(f.Leaf.NotAfter), who.UID, who.PID)
	if err := h.State.WriteFile(requestFile(f), text); err != nil {
		return nil, err
	}
	return r.Text(), nil
}

// requested is what was asked for the successor of just this certificate.
func (h *handler) requested(f pair.Facts) (kept requested, err error) {
	text, err := h.State.ReadFile(requestFile(f))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kept, err
	}
	if err != nil || json.Unmarshal(text, &kept) != nil || kept.Leaf != f.Leaf.SHA256 {
		return requested{}, refuse("nobody was asked for the successor of this %s", f.Name)
	}
	return kept, nil
}

// issue makes the certificate that another host asks for, with the key of the CA of this host's etcd.
func (h *handler) issue(who frame.Peer, q Issue) ([]byte, error) {
	p, err := h.Load()
	switch {
	case err != nil:
		return nil, err
	case q.Force && who.UID != 0:
		return nil, refuse("only root may insist")
	case p.Mode == pair.ModeReport:
		return nil, refuse("this host only reports: renewal.mode is report")
	case who.UID != 0 && !p.throughEtcd():
		return nil, refuse("only root may answer other hosts, unless renewal.throughEtcd is set")
	case who.UID != 0 && !h.issues.Allow(1):
		return nil, &Error{Failed, "more requests than any cluster needs; this one is for later"}
	}
	r, err := issue.ParseRequest(q.Request)
	if err != nil {
		return nil, refused("the request", err)
	}
	now, old := h.Now(), pair.Facts{Leaf: pair.Describe(r.Old)}
	switch {
	case q.Force:
	case !old.Due(p.Policy, now):
		return nil, refuse("%s is not due: it ends at %s", old.Leaf.Subject, stamp(old.Leaf.NotAfter))
	case !now.Before(r.Old.NotAfter):
		return nil, refuse("%s has ended at %s: only root may have it renewed, by node-cert-agent renew issue --force",
			old.Leaf.Subject, stamp(old.Leaf.NotAfter))
	}
	return h.answer(who, r, p.Lifetime, now)
}

// answer signs what a request asks for.
func (h *handler) answer(who frame.Peer, r issue.Request, lifetime time.Duration, now time.Time) ([]byte, error) {
	ca, key, err := h.Host.EtcdAuthority()
	if err != nil {
		return nil, err
	}
	made, err := issue.Order{CA: ca, CAKey: key, Now: now, Lifetime: lifetime}.Answer(r, h.Random)
	if err != nil {
		return nil, refused("the request", err)
	}
	before, after := pair.Describe(r.Old), pair.Describe(made)
	fmt.Fprintf(h.log, "<5>signer issues: subject=%q before=%s after=%s ends=%s uid=%d pid=%d\n", after.Subject,
		before.SHA256, after.SHA256, stamp(after.NotAfter), who.UID, who.PID)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Raw}), nil
}

// install replaces a pair by what another host issued. Whoever carried it need not be believed.
func (h *handler) install(who frame.Peer, q Install) (*pair.Facts, error) {
	f, _, err := h.asking(who, q.Change)
	if err != nil {
		return nil, err
	}
	if who.UID != 0 && !h.renewals.Allow(1) {
		return nil, &Error{Failed, "more renewals than any host needs; this one is for later"}
	}
	kept, err := h.requested(f)
	if err != nil {
		return nil, err
	}
	old, err := h.Replacer.Read(FilesOf(f))
	if err != nil {
		return nil, err
	}
	ca, err := h.Host.Trusted(f)
	if err != nil {
		return nil, err
	}
	next, err := issue.Order{Old: issue.Pair{Certificate: old.Certificate, Key: old.Key}, CA: ca, Now: h.Now()}.Accept(
		secret.New(kept.Key), q.Certificate)
	if err != nil {
		return nil, refused(f.Name, err)
	}
	facts, err := h.replace(who, f, old, next)
	if err == nil {
		_ = h.State.Remove(requestFile(f)) // it is for a certificate that has gone
	}
	return facts, err
}
