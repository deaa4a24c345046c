// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
)

// journalField is the alphabet of systemd.journal-fields(7). go-systemd complains about another name
// and sends it all the same.
var journalField = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

// fieldNames lists every field.
func fieldNames() []FieldName {
	return []FieldName{ControllerConfigUID, ResourceVersion, SourceField, Entry, Path, Cause, Before, After, CertsAdded,
		CertsRemoved, Files, Unit, Verb, AlsoAffects, Inputs, State, Reason, Consumer, Version, Request, Serial, Expires,
		Credential, Override}
}

// kinds lists every kind of record, in the order of a change's life.
func kinds() []Kind {
	return []Kind{Started, Intent, Written, Removed, CommitFailed, Refused, Retained, Held, Conflict, OverrideSet,
		OverrideReverted, UnitActionDispatched, UnitActionDone, UnitActionFailed, UnitAdopted, ConsumerLive,
		ConsumerStale, UnitActionRefused, UnitActionOverdue, UnitBreaker, SourceState, NoMemory, MemoryLost,
		ConfigRejected, RequestCreated, RequestDenied, IdentityIssued, IdentityProven, IdentityRenewed, IdentitySuspect,
		IdentityLost, RenewalForbidden, CAPinned, ClusterAnnounced, CredentialRefused, CredentialConsumed, Error}
}

func TestFieldNamesAreFitForTheJournal(t *testing.T) {
	for _, f := range fieldNames() {
		if !journalField.MatchString(string(f)) || !strings.HasPrefix(string(f), "NODECERT_") {
			t.Errorf("field %q", f)
		}
	}
}

func TestEveryKindHasAnIDOfItsOwn(t *testing.T) {
	ids, names := map[ID]bool{}, map[string]bool{}
	for _, k := range kinds() {
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(string(k.ID)) || ids[k.ID] || names[k.Name] || k.Meaning == "" {
			t.Errorf("kind %+v", k)
		}
		ids[k.ID], names[k.Name] = true, true
	}
}

func TestRecordsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit-records.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds() {
		if row := fmt.Sprintf("| `%s` | `%s` | %d | %s |", k.Name, k.ID, k.Priority,
			k.Meaning); !strings.Contains(string(page), row) {
			t.Errorf("docs/audit-records.md lacks the line\n%s", row)
		}
	}
	for _, f := range fieldNames() {
		if !strings.Contains(string(page), "`"+string(f)+"`") {
			t.Errorf("docs/audit-records.md does not explain %s", f)
		}
	}
}

// update writes the catalog anew: go test ./agent/audit -update
var update = flag.Bool("update", false, "write the journal's catalog")

// catalog is what journalctl -x says to each record (https://systemd.io/CATALOG).
func catalog() string {
	var b strings.Builder
	b.WriteString("# What `journalctl -x` adds to the audit records. Made from agent/audit/ids.go by `go test " +
		"./agent/audit -update`.\n")
	for _, k := range kinds() {
		fmt.Fprintf(&b, "\n-- %s\nSubject: Node certificate agent: %s\nDefined-By: node-cert-agent\nDocumentation: "+
			"man:node-cert-agent(8)\n\n%s.\n",
			k.ID, k.Name, strings.ToUpper(k.Meaning[:1])+k.Meaning[1:])
		b.WriteString("The fields NODECERT_* of this entry (-o verbose) have the details.\n")
	}
	return b.String()
}

func TestTheJournalsCatalogHasEveryRecord(t *testing.T) {
	const file = "../../systemd/usr/lib/systemd/catalog/node-cert-agent.catalog"
	if *update {
		if err := os.WriteFile(file, []byte(catalog()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != catalog() {
		t.Errorf("the catalog is not that of Kinds (%v); make it with: go test ./agent/audit -update", err)
	}
}

func sample() Record {
	return Record{Kind: Written, Message: "wrote /x"}.With(Path, "/x").With(Before, "").With(CertsAdded, "a\nb")
}

func TestARecordReachesTheJournalWithItsIdentity(t *testing.T) {
	var got map[string]string
	trail := &Trail{text: new(strings.Builder), send: func(m string, p journal.Priority, f map[string]string) error {
		got = f
		got["MESSAGE"], got["PRIORITY"] = m, fmt.Sprint(int(p))
		return nil
	}}
	trail.Record(sample())
	want := map[string]string{"MESSAGE": "wrote /x", "PRIORITY": "5", "MESSAGE_ID": string(Written.ID),
		"SYSLOG_IDENTIFIER": "node-cert-agent", "NODECERT_PATH": "/x", "NODECERT_CERTS_ADDED": "a\nb"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}

func TestWithoutAJournalTheRecordGoesToStandardError(t *testing.T) {
	var text strings.Builder
	trail := &Trail{text: &text, send: func(string, journal.Priority,
		map[string]string) error {
		return errors.New("no socket")
	}}
	trail.Record(sample())
	if want := `<5>wrote /x path="/x" certs_added="a\nb"` + "\n"; text.String() != want {
		t.Errorf("wrote %q, want %q", text.String(), want)
	}
	text.Reset()
	Text(&text).Record(sample())
	if strings.HasPrefix(text.String(), "<") {
		t.Errorf("plain mode shows a syslog level: %q", text.String())
	}
}
