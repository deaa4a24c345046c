// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
)

// Phase is how far a holder is.
type Phase string

// The phases. A Claim changes nothing on its host and ends with its lease. Work may have changed a pair, and no time
// ends it.
const (
	Claim Phase = "claim"
	Work  Phase = "work"
)

// Note is what a holder says of itself. Nothing is decided by its times.
type Note struct {
	Host  string `json:"host"`
	Phase Phase  `json:"phase"`
	// Pair is the name of the pair that is replaced.
	Pair string `json:"pair,omitempty"`
	// Since is when the claim was made, or when the first pair was begun, by the clock of the host.
	Since time.Time `json:"since"`
	// Reason is why work does not go on.
	Reason string `json:"reason,omitempty"`
	// Journal is the digest of the host's own record of what it does.
	Journal string `json:"journal,omitempty"`
}

// Holder is the lock as it was found.
type Holder struct {
	Note
	// Revision tells this note from every other, before and after.
	Revision int64
	// Unreadable says that there is something in place of a note. It counts as work of somebody else.
	Unreadable bool
}

// longestNote is in bytes, ten times what a note takes.
const longestNote = 8 << 10

// read is who holds the lock by what is in etcd; nil is nobody. What comes from there is made fit for people.
func read(kv *etcd.KeyValue) *Holder {
	if kv == nil {
		return nil
	}
	h := &Holder{Revision: kv.ModRevision}
	if len(kv.Value) > longestNote || json.Unmarshal(kv.Value, &h.Note) != nil || h.Host == "" ||
		h.Phase != Claim && h.Phase != Work {
		h.Note, h.Unreadable = Note{}, true
	}
	show(&h.Host, &h.Pair, &h.Reason, &h.Journal)
	return h
}

// show makes texts fit for people.
func show(texts ...*string) {
	for _, s := range texts {
		*s = printable.Text(*s)
	}
}

// HeldError says that somebody else, or an earlier claim of this host, has the lock.
type HeldError struct{ Holder Holder }

// Error implements error.
func (e *HeldError) Error() string {
	h := e.Holder
	if h.Unreadable {
		return "the lock is held by somebody whose note cannot be read"
	}
	what := "which claims it"
	if h.Phase == Work {
		what = "which works on " + h.Pair
	}
	text := fmt.Sprintf("the lock is held by %s, %s since %s", h.Host, what, h.Since.UTC().Format(time.RFC3339))
	if h.Reason != "" {
		text += ": " + h.Reason
	}
	return text
}
