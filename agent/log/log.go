// SPDX-License-Identifier: Apache-2.0

// Package log makes the diagnostic log: entries of the journal under systemd, and lines elsewhere.
//
// In the journal MESSAGE is the line that a person reads, and each field of it is a field of the entry, too:
// `journalctl _SYSTEMD_UNIT=node-cert-agent.service NODECERT_FILE=...` finds it. An entry that journald does not take
// goes to standard error with its level before it. The package promises neither delivery nor an order between
// entries and what is written to standard error otherwise, such as the last words of a process. Audit records
// are no part of it: no level silences them.
//
// Sources: systemd.exec(5) on JOURNAL_STREAM, systemd.journal-fields(7), sd-daemon(3).
package log

import (
	"errors"
	"io"

	"github.com/coreos/go-systemd/v22/journal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Settings are what is logged, and how where there is no journal. Both values are flags.
type Settings struct {
	Level  Level
	Format Format
}

// Level is the least that is logged: debug, info (the zero value), warn or error.
type Level zapcore.Level

// Set implements flag.Value.
func (l *Level) Set(text string) error {
	level, err := zapcore.ParseLevel(text)
	if err != nil || level > zapcore.ErrorLevel {
		return errors.New("want debug, info, warn or error")
	}
	*l = Level(level)
	return nil
}

// String implements flag.Value.
func (l *Level) String() string { return zapcore.Level(*l).String() }

// Type is what pflag.Value has besides.
func (*Level) Type() string { return "string" }

// Format is how lines look where there is no journal.
type Format string

// The formats that exist.
const (
	Console Format = "console"
	JSON    Format = "json"
)

// Set implements flag.Value.
func (f *Format) Set(text string) error {
	if text != string(Console) && text != string(JSON) {
		return errors.New("want console or json")
	}
	*f = Format(text)
	return nil
}

// String implements flag.Value.
func (f *Format) String() string { return string(*f) }

// Type is what pflag.Value has besides.
func (*Format) Type() string { return "string" }

// InJournal reports whether standard error leads to the journal, as systemd says in JOURNAL_STREAM.
func InJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return err == nil && is
}

// Journal logs to the journal under identifier, and to fallback what journald does not take.
func Journal(identifier string, s Settings, fallback io.Writer) *zap.Logger {
	return zap.New(newCore(identifier, s, journal.Send, fallback))
}

// Lines logs to w.
func Lines(s Settings, w io.Writer) *zap.Logger {
	encoder := console("l")
	if s.Format == JSON {
		encoder = zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), zapcore.Level(s.Level)))
}

// console is a message and its fields on a line, after the level if that has a key. Who reads the line knows the time.
func console(levelKey string) zapcore.Encoder {
	return zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m", LevelKey: levelKey, ConsoleSeparator: " ",
		EncodeDuration: zapcore.StringDurationEncoder, EncodeTime: zapcore.RFC3339TimeEncoder,
		EncodeLevel: func(l zapcore.Level, e zapcore.PrimitiveArrayEncoder) { e.AppendString(l.String() + ":") }})
}
