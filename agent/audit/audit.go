// SPDX-License-Identifier: Apache-2.0

// Package audit leaves the trail: one structured record for every decision with an effect, sent
// before the effect where the design says so. Diagnostics, which record no effect, are package log's.
//
// Each record has a fixed MESSAGE_ID, SYSLOG_IDENTIFIER=node-cert-agent and NODECERT_* fields, so
// that `journalctl _SYSTEMD_UNIT=node-cert-agent.service NODECERT_FIELD=rootCAData` is a complete history. Values that
// come from the cluster or the network are escaped and cut at 256 bytes.
//
// A journal that does not take a record does not stop the work: the record goes to standard error
// instead. Stale trust kills a node, a missing line does not. The package promises neither
// delivery nor order across processes; journald adds the trusted fields.
//
// Sources: systemd.journal-fields(7), https://systemd.io/JOURNAL_NATIVE_PROTOCOL/.
package audit

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// Identifier is the SYSLOG_IDENTIFIER of every record; go-systemd sets none of its own.
const Identifier = "node-cert-agent"

// Field is one NODECERT_* value. The journal's own fields cannot be expressed.
type Field struct {
	Name  FieldName
	Value string
}

// FieldName is a journal field: upper-case letters, digits and underscores. They are constants
// because go-systemd sends an invalid name after complaining about it.
type FieldName string

// The fields that records carry.
const (
	ControllerConfigUID FieldName = "NODECERT_CONTROLLERCONFIG_UID"
	ResourceVersion     FieldName = "NODECERT_RESOURCE_VERSION"
	SourceField         FieldName = "NODECERT_FIELD"
	Entry               FieldName = "NODECERT_ENTRY"
	Path                FieldName = "NODECERT_PATH"
	Cause               FieldName = "NODECERT_CAUSE"
	Before              FieldName = "NODECERT_BEFORE"
	After               FieldName = "NODECERT_AFTER"
	CertsAdded          FieldName = "NODECERT_CERTS_ADDED"
	CertsRemoved        FieldName = "NODECERT_CERTS_REMOVED"
	Files               FieldName = "NODECERT_FILES"
	Unit                FieldName = "NODECERT_UNIT"
	Verb                FieldName = "NODECERT_VERB"
	AlsoAffects         FieldName = "NODECERT_ALSO_AFFECTS"
	Inputs              FieldName = "NODECERT_INPUTS"
	State               FieldName = "NODECERT_STATE"
	Reason              FieldName = "NODECERT_REASON"
	Version             FieldName = "NODECERT_VERSION"
	Consumer            FieldName = "NODECERT_CONSUMER"
	Request             FieldName = "NODECERT_REQUEST"
	Serial              FieldName = "NODECERT_SERIAL"
	Expires             FieldName = "NODECERT_EXPIRES"
	Credential          FieldName = "NODECERT_CREDENTIAL"
	Override            FieldName = "NODECERT_OVERRIDE"
)

// Record is one line of the trail.
type Record struct {
	Kind    Kind
	Message string
	Fields  []Field
}

// With appends a field unless its value is empty.
func (r Record) With(name FieldName, value string) Record {
	if value != "" {
		r.Fields = append(r.Fields, Field{name, value})
	}
	return r
}

// Trail is where records go. It is safe for concurrent use.
type Trail struct {
	mu   sync.Mutex
	send func(message string, priority journal.Priority, fields map[string]string) error
	text io.Writer
	bare bool
}

// Journal records in the journal, and on fallback whatever the journal does not take.
func Journal(fallback io.Writer) *Trail { return &Trail{send: journal.Send, text: fallback} }

// Text records as lines of text on w alone, for plain mode.
func Text(w io.Writer) *Trail { return &Trail{text: w, bare: true} }

// Record sends r. It never fails: see the package comment.
func (t *Trail) Record(r Record) {
	if t.send != nil {
		fields := make(map[string]string, len(r.Fields)+2)
		fields["MESSAGE_ID"] = string(r.Kind.ID)
		fields["SYSLOG_IDENTIFIER"] = Identifier
		for _, f := range r.Fields {
			fields[string(f.Name)] = f.Value
		}
		if t.send(r.Message, journal.Priority(r.Kind.Priority), fields) == nil {
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	line := r.line()
	if !t.bare {
		line = fmt.Sprintf("<%d>%s", r.Kind.Priority, line)
	}
	_, _ = io.WriteString(t.text, line)
}

// line is the record as text. Under systemd the level goes before it, as sd-daemon(3) says.
func (r Record) line() string {
	var b strings.Builder
	b.WriteString(r.Message)
	for _, f := range r.Fields {
		name := strings.ToLower(strings.TrimPrefix(string(f.Name), "NODECERT_"))
		fmt.Fprintf(&b, " %s=%s", name, strconv.Quote(f.Value))
	}
	b.WriteByte('\n')
	return b.String()
}
