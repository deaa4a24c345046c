// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// sent is an entry that a journal got.
type sent struct {
	message  string
	priority journal.Priority
	fields   map[string]string
}

// recorder is a log whose journal keeps what it gets.
func recorder(s Settings) (*zap.Logger, *[]sent) {
	var got []sent
	return zap.New(newCore("tester", s, func(m string, p journal.Priority, f map[string]string) error {
		got = append(got, sent{m, p, f})
		return nil
	}, new(strings.Builder))), &got
}

func TestALineIsAnEntryWithItsFields(t *testing.T) {
	log, got := recorder(Settings{})
	log.With(zap.String("unit", "a.service")).Warn("waiting", zap.Error(errors.New("no\n<0>space")), zap.Int("tries", 3),
		zap.Duration("for", 90*time.Second), zap.Time("until", time.Unix(0, 0)), zap.String("odd-näme", "x"))
	if len(*got) != 1 {
		t.Fatalf("%d entries", len(*got))
	}
	e := (*got)[0]
	want := map[string]string{"SYSLOG_IDENTIFIER": "tester",
		"NODECERT_UNIT": "a.service", "NODECERT_ERROR": "no\n<0>space",
		"NODECERT_TRIES": "3", "NODECERT_FOR": "1m30s", "NODECERT_UNTIL": "1970-01-01T00:00:00Z", "NODECERT_ODD_N_ME": "x"}
	if !maps.Equal(e.fields, want) || e.priority != journal.PriWarning {
		t.Errorf("sent %v with priority %d, want %v", e.fields, e.priority, want)
	}
	text := `waiting {"unit": "a.service", "error": "no\n<0>space", "tries": 3, "for": "1m30s"`
	if !strings.HasPrefix(e.message, text) || strings.Contains(e.message, "\n") {
		t.Errorf("the message is %q", e.message)
	}
}

func TestOnlyTheLevelThatWasAskedForIsLogged(t *testing.T) {
	for name, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1} {
		var s Settings
		if err := s.Level.Set(name); err != nil || s.Level.String() != name {
			t.Fatal(name, err)
		}
		log, got := recorder(s)
		var lines strings.Builder
		for _, l := range []*zap.Logger{log, Lines(s, &lines)} {
			l.Debug("d")
			l.Info("i")
			l.Warn("w")
			l.Error("e")
		}
		if n := strings.Count(lines.String(), "\n"); len(*got) != want || n != want {
			t.Errorf("%s: %d entries and %d lines, want %d", name, len(*got), n, want)
		}
	}
	for _, name := range []string{"all", "panic", "fatal", "9"} {
		if new(Level).Set(name) == nil {
			t.Errorf("the level %q was taken", name)
		}
	}
}

func TestWhatTheJournalDoesNotTakeIsALine(t *testing.T) {
	var lines strings.Builder
	full := func(string, journal.Priority, map[string]string) error { return errors.New("full") }
	log := zap.New(newCore("tester", Settings{}, full, &lines))
	log.Debug("no")
	log.Error("yes", zap.String("file", "/x"))
	if want := `<3>yes {"file": "/x"}` + "\n"; lines.String() != want {
		t.Errorf("wrote %q, want %q", lines.String(), want)
	}
}

func TestLinesAreForPersonsOrForPrograms(t *testing.T) {
	var s Settings
	var lines strings.Builder
	Lines(s, &lines).Warn("waiting", zap.String("file", "/x"))
	if want := `warn: waiting {"file": "/x"}` + "\n"; lines.String() != want {
		t.Errorf("wrote %q, want %q", lines.String(), want)
	}
	lines.Reset()
	if err := s.Format.Set("json"); err != nil {
		t.Fatal(err)
	}
	Lines(s, &lines).Warn("waiting", zap.String("file", "/x"))
	got := lines.String()
	if !strings.HasPrefix(got, `{"level":"warn","ts":`) || !strings.HasSuffix(got, `"msg":"waiting","file":"/x"}`+"\n") {
		t.Errorf("wrote %q", got)
	}
	if s.Format.Set("xml") == nil {
		t.Error("xml was taken")
	}
}

func TestNoSecretIsInTheJournal(t *testing.T) {
	log, got := recorder(Settings{})
	s := secret.New([]byte("hunter2"))
	log.Info("x", zap.Any("a", s), zap.Stringer("b", s), zap.Reflect("c", struct{ s secret.Bytes }{s}))
	for _, e := range *got {
		for name, text := range e.fields {
			if strings.Contains(text, "hunter2") || strings.Contains(text, "104 117 110") {
				t.Errorf("%s=%s", name, text)
			}
		}
		if strings.Contains(e.message, "hunter2") || e.fields["NODECERT_B"] != secret.Redacted {
			t.Errorf("sent %+v", e)
		}
	}
}

func TestTheJournalIsWhereSystemdSaysThatStandardErrorLeads(t *testing.T) {
	var stderr syscall.Stat_t
	if err := syscall.Fstat(2, &stderr); err != nil {
		t.Fatal(err)
	}
	ours := fmt.Sprintf("%d:%d", stderr.Dev, stderr.Ino)
	for stream, want := range map[string]bool{"": false, "1:1": false, "forged": false, ours: true} {
		t.Setenv("JOURNAL_STREAM", stream)
		if InJournal() != want {
			t.Errorf("JOURNAL_STREAM=%q leads to the journal: %v, want %v", stream, !want, want)
		}
	}
}
