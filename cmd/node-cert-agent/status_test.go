// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// hostile is what a terminal would act on, with a line of its own that looks like one of ours.
const hostile = "x\x1b]0;pwned\a\x1b[31m\nState: FORGED\r\u009b2J\x7f\u202e\t"

// forge fills every string in v, those in lists and behind pointers too.
func forge(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile + strings.Repeat("long ", 1000))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		forge(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			forge(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for _, field := range v.Fields() {
			if field.CanSet() {
				forge(field)
			}
		}
	}
}

// wantPlain fails if a terminal would do more with the text than to show it.
func wantPlain(t *testing.T, what, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "State: FORGED") {
			t.Errorf("%s has a forged line:\n%q", what, line)
		}
		if at := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r > '~' }); at >= 0 {
			t.Errorf("%s holds %q", what, line[at:min(len(line), at+10)])
		}
	}
}

// The file belongs to the agent's user, and root reads it.
func TestAForgedStatusIsShownAndDoesNothing(t *testing.T) {
	var s report.Status
	forge(reflect.ValueOf(&s).Elem())
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	// Characters that JSON need not escape, and blanks that it allows.
	data = bytes.Replace(data, []byte("{"), []byte("{\r\n\t\"unknown\u009b\x7f\": \"\u009b2J\x7f\u202e\U0001f600\",\r"), 1)
	r := newTree(t)
	if err := os.MkdirAll(r.path(runtimeDir), 0o755); err != nil {
		t.Fatal(err)
	}
	save(t, r.path(runtimeDir+"/status.json"), string(data))
	table := r.command("status")
	wantPlain(t, "the table", table.stdout+table.stderr)
	for line := range strings.SplitSeq(table.stdout, "\n") {
		if len(line) > 5000 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	asked := r.command("status", "-o", "json")
	wantPlain(t, "the JSON", asked.stdout+asked.stderr)
	var back, sent any
	if json.Unmarshal([]byte(asked.stdout), &back) != nil || json.Unmarshal(data, &sent) != nil ||
		!reflect.DeepEqual(back, sent) {
		t.Error("the JSON does not say what the agent published")
	}
	var said bytes.Buffer
	if s, err = report.Parse(data); err != nil {
		t.Fatal(err)
	}
	err = printOutcome(&said, s, plan.Desired{})
	wantPlain(t, "apply", said.String()+err.Error())
	said.Reset()
	printHeld(&said, s.Held)
	wantPlain(t, "apply --now", said.String())
}

func TestAStatusThatIsNoneIsRefusedInPlainWords(t *testing.T) {
	r := newTree(t)
	if err := os.MkdirAll(r.path(runtimeDir), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"\x1b[31m", `{"state":` + "\x1b", `{"\x1b[31m":1}`, `{"since": "` + "\u009b" + `"}`,
		""} {
		save(t, r.path(runtimeDir+"/status.json"), content)
		for _, args := range [][]string{{"status"}, {"status", "-o", "json"}} {
			o := r.command(args...)
			if o.code != process.Failed {
				t.Errorf("%q: %+v", content, o)
			}
			wantPlain(t, "the error", o.stdout+o.stderr)
		}
	}
}
