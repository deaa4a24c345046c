// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/renew/issue"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/replace"
)

func refuse(format string, args ...any) error { return &Error{Refused, fmt.Sprintf(format, args...)} }

// checked is the pair of a request, if there is one and the caller has seen what is there now.
func (h *handler) checked(who frame.Peer, q Change) (f pair.Facts, p Policy, err error) {
	if q.Force && who.UID != 0 {
		return f, p, refuse("only root may insist")
	}
	if p, err = h.Load(); err != nil {
		return f, p, err
	}
	if h.Replacer == nil || p.Mode == pair.ModeReport {
		return f, p, refuse("this host only reports: renewal.mode is report, or was when the signer started")
	}
	if f, err = h.Host.Find(q.Pair); err != nil {
		return f, p, refuse("%v", err)
	}
	if f.Leaf.SHA256 != q.Leaf {
		return f, p, refuse("%s is another one by now: %.16s, which ends at %s", f.Name, f.Leaf.SHA256,
			stamp(f.Leaf.NotAfter))
	}
	return f, p, nil
}

// renew replaces a pair that is due.
func (h *handler) renew(who frame.Peer, q Change) (*pair.Facts, error) {
	f, p, err := h.checked(who, q)
	if err != nil {
		return nil, err
	}
	if who.UID != 0 && p.Mode != pair.ModeRenew {
		return nil, refuse("renewal.mode is manual: only root may have a pair renewed")
	}
	if who.UID != 0 && !h.renewals.Allow(1) {
		return nil, &Error{Failed, "more renewals than any host needs; this one is for later"}
	}
	now := h.Now()
	v := pair.Judge(f, nil, p.Policy, now)
	switch {
	case !v.Renewable:
		return nil, refuse("%s is not for us to renew: %s%s", f.Name, v.NotRenewed, v.RenewedBy)
	case v.State == pair.OK && !q.Force:
		return nil, refuse("%s is not due: it ends at %s", f.Name, stamp(f.Leaf.NotAfter))
	}
	old, err := h.Replacer.Read(FilesOf(f))
	if err != nil {
		return nil, err
	}
	next, err := h.successor(f, p, old, now)
	if err != nil {
		return nil, err
	}
	return h.replace(who, f, old, next)
}

// replace puts a successor in the place of a pair that holds old.
func (h *handler) replace(who frame.Peer, f pair.Facts, old replace.Content, next issue.Successor) (*pair.Facts,
	error) {
	leaf := pair.Describe(next.Leaf)
	h.record(who, "replaces", f, leaf)
	if err := h.Replacer.Replace(FilesOf(f), old.Digests(), replace.Content{Certificate: next.Certificate,
		Key: next.Key}); err != nil {
		h.record(who, "did not replace", f, leaf)
		return nil, err
	}
	return h.after(f.Name)
}

// successor is what comes in the place of a pair that holds old.
func (h *handler) successor(f pair.Facts, p Policy, old replace.Content, now time.Time) (issue.Successor, error) {
	ca, caKey, err := h.Host.Authority(f)
	if err != nil {
		return issue.Successor{}, err
	}
	next, err := issue.Order{Old: issue.Pair{Certificate: old.Certificate, Key: old.Key}, CA: ca, CAKey: caKey, Now: now,
		Lifetime: p.Lifetime, ReuseKey: p.ReuseKey}.Successor(h.Random)
	return next, refused(f.Name, err)
}

// refused is an error of package issue as the caller has to take it.
func refused(name string, err error) error {
	if refusal, ok := errors.AsType[*issue.Refusal](err); ok {
		return refuse("%s: %v", name, refusal)
	}
	return err
}

// end says what becomes of a pair that waits.
type end string

const (
	keep    end = "keeps"
	restore end = "restores"
)

// leastLife is what a pair must have left to be worth restoring, but no more than a sixth of its life: it is due when a
// third is left.
const leastLife = time.Hour

// settle ends the wait of a pair.
func (h *handler) settle(who frame.Peer, q Change, how end) (*pair.Facts, error) {
	f, _, err := h.checked(who, q)
	if err != nil {
		return nil, err
	}
	status := h.Replacer.Waiting()
	if status.Pair.ID != FilesOf(f).ID {
		return nil, refuse("%s does not wait for proof", f.Name)
	}
	do := h.Replacer.Keep
	if how == restore {
		do = h.Replacer.Restore
		if err := h.worthRestoring(f.Name); err != nil && !q.Force {
			return nil, err
		}
	}
	h.record(who, string(how), f, f.Leaf)
	if err := do(status.Pair.ID, status.Leaf); err != nil {
		return nil, err
	}
	return h.after(f.Name)
}

// abandon ends the wait of a pair, and leaves its files as somebody else made them.
func (h *handler) abandon(who frame.Peer, name string) error {
	switch {
	case who.UID != 0:
		return refuse("only root may abandon a pair")
	case h.Replacer == nil || h.Replacer.Waiting().Pair.ID != strings.ToLower(name):
		return refuse("%.64q does not wait for proof", name)
	}
	w := h.Replacer.Waiting()
	fmt.Fprintf(h.log, "<4>signer abandons: pair=%q after=%s uid=%d pid=%d\n", name, w.Leaf, who.UID, who.PID)
	if err := h.Replacer.Abandon(w.Pair.ID); err != nil {
		return err
	}
	h.Blocked = ""
	return nil
}

// worthRestoring says why what a pair was before it waited is no better than what it is.
func (h *handler) worthRestoring(name string) error {
	old, err := h.Replacer.Old()
	if err != nil {
		return err
	}
	leaf, err := pair.Certificate(old.Certificate)
	if err != nil {
		return err
	}
	if left := leaf.NotAfter.Sub(h.Now()); left < min(leastLife, leaf.NotAfter.Sub(leaf.NotBefore)/6) {
		return refuse("what %s was before ended or ends at %s: it is no better", name, stamp(leaf.NotAfter))
	}
	return nil
}

// after is how a pair is when it was changed.
func (h *handler) after(name string) (*pair.Facts, error) {
	f, err := h.Host.Find(name)
	if err != nil {
		return nil, err
	}
	h.chain(&f)
	return &f, nil
}

// chain adds to a pair that waits for proof what a client shows beside its signature.
func (h *handler) chain(f *pair.Facts) {
	if h.Replacer == nil || h.Replacer.Waiting().Pair.ID != FilesOf(*f).ID {
		return
	}
	if held, err := h.Replacer.Read(FilesOf(*f)); err == nil {
		for _, c := range pair.Certificates(held.Certificate) {
			f.Chain = append(f.Chain, c.Raw)
		}
	}
}

// record says what is done for a peer before it is done: whoever asked cannot change or leave out this line.
func (h *handler) record(who frame.Peer, verb string, f pair.Facts, leaf pair.Leaf) {
	fmt.Fprintf(h.log, "<5>signer %s: pair=%q path=%q before=%s after=%s ends=%s uid=%d pid=%d\n", verb, f.Name, f.Cert,
		f.Leaf.SHA256, leaf.SHA256, stamp(leaf.NotAfter), who.UID, who.PID)
}

// FilesOf is the pair as package replace knows it.
func FilesOf(f pair.Facts) replace.Pair {
	if f.Kubeconfig {
		return replace.Pair{ID: strings.ToLower(f.Name), Kubeconfig: f.Cert}
	}
	return replace.Pair{ID: strings.ToLower(f.Name), Key: f.Key, Certificate: f.Cert}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
