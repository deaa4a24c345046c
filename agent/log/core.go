// SPDX-License-Identifier: Apache-2.0

package log

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"go.uber.org/zap/zapcore"
)

// send is that of go-systemd.
type send func(message string, p journal.Priority, fields map[string]string) error

// core is a zapcore.Core that sends entries to the journal.
type core struct {
	zapcore.LevelEnabler
	identifier string
	send       send
	message    zapcore.Encoder
	fields     []zapcore.Field
	fallback   io.Writer
}

func newCore(identifier string, s Settings, to send, fallback io.Writer) *core {
	return &core{LevelEnabler: zapcore.Level(s.Level), identifier: identifier, send: to, message: console(""),
		fallback: zapcore.Lock(zapcore.AddSync(fallback))}
}

// With implements zapcore.Core, as the methods that follow do.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	more := *c
	more.fields = slices.Concat(c.fields, fields)
	return &more
}

func (c *core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return checked
	}
	return checked.AddCore(e, c)
}

func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	fields = slices.Concat(c.fields, fields)
	text, err := c.message.EncodeEntry(e, fields)
	if err != nil {
		return err
	}
	defer text.Free()
	message := strings.TrimSuffix(text.String(), "\n")
	if c.send(message, priority(e.Level), c.entry(fields)) == nil {
		return nil
	}
	_, err = fmt.Fprintf(c.fallback, "<%d>%s\n", priority(e.Level), message)
	return err
}

func (*core) Sync() error { return nil }

// entry has a field of the journal for each that is a word, a number or a time. Others are in MESSAGE only: their
// text would be one that nobody chose, and may show what has no text form on purpose.
func (c *core) entry(fields []zapcore.Field) map[string]string {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(values)
	}
	entry := map[string]string{"SYSLOG_IDENTIFIER": c.identifier}
	for key, value := range values.Fields {
		switch v := value.(type) {
		case string, bool, int64, uint64, time.Duration:
			entry[fieldName(key)] = fmt.Sprint(v)
		case time.Time:
			entry[fieldName(key)] = v.UTC().Format(time.RFC3339)
		}
	}
	return entry
}

// fieldName is key as journald takes it: capitals, digits and underscores, at most 64. go-systemd complains about
// another name on standard error, and sends it.
func fieldName(key string) string {
	name := "NODECERT_" + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, strings.ToUpper(key))
	return name[:min(len(name), 64)]
}

// priority is the level of syslog(3).
func priority(l zapcore.Level) journal.Priority {
	switch {
	case l <= zapcore.DebugLevel:
		return journal.PriDebug
	case l == zapcore.InfoLevel:
		return journal.PriInfo
	case l == zapcore.WarnLevel:
		return journal.PriWarning
	}
	return journal.PriErr
}
