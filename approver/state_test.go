// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"encoding/json"
	"testing"
	"time"
)

func parse(t *testing.T, object string) (s nodeState) {
	t.Helper()
	if err := json.Unmarshal([]byte(object), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheHeartbeatIsWhatTheServerSaysOfTheSpec(t *testing.T) {
	const entry = `{"manager":"%","operation":"Apply","time":"2026-11-21T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:state":{}}}}`
	for sentence, c := range map[string]struct{ object, want string }{
		"never written":           {`{"metadata":{"name":"a"}}`, ""},
		"made by the approver":    {`{"metadata":{"managedFields":[{"time":"2026-11-21T10:00:00Z","subresource":"status","fieldsV1":{"f:status":{}}}]}}`, ""},
		"annotated by somebody":   {`{"metadata":{"managedFields":[{"time":"2026-11-21T10:00:00Z","fieldsV1":{"f:metadata":{"f:spec":{}}}}]}}`, ""},
		"written by the agent":    {`{"metadata":{"managedFields":[` + entry + `]}}`, "2026-11-21T10:00:00Z"},
		"the agent's last word":   {`{"metadata":{"managedFields":[{"time":"2026-11-21T09:00:00Z","fieldsV1":{"f:spec":{}}},` + entry + `]}}`, "2026-11-21T10:00:00Z"},
		"annotated after that":    {`{"metadata":{"managedFields":[` + entry + `,{"time":"2026-11-21T11:00:00Z","fieldsV1":{"f:metadata":{}}}]}}`, "2026-11-21T10:00:00Z"},
		"an entry without fields": {`{"metadata":{"managedFields":[{"time":"2026-11-21T11:00:00Z"}]}}`, ""},
	} {
		i := parse(t, c.object).identity()
		if (i != nil) != (c.want != "") || i != nil && i.Heartbeat.UTC().Format(time.RFC3339) != c.want {
			t.Errorf("%s: got %+v, want %q", sentence, i, c.want)
		}
	}
}

func TestAnUnreadableTimeIsNone(t *testing.T) {
	s := parse(t, `{"metadata":{"managedFields":[{"time":"2026-11-21T10:00:00Z","fieldsV1":{"f:spec":{}}}]},
		"spec":{"identity":{"issued":"yesterday","expires":"2026-11-22T10:00:00.5+01:00"}}}`)
	if i := s.identity(); !i.Issued.IsZero() || i.Expires.UTC().Hour() != 9 {
		t.Errorf("got %+v", i)
	}
}

func FuzzOwns(f *testing.F) {
	f.Add([]byte(`{"f:metadata":{"f:spec":{}},"f:spec":{}}`))
	f.Add([]byte(`["f:spec"]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(b, &fields) != nil {
			owns(b, "f:spec") // anything but a panic
			return
		}
		if _, want := fields["f:spec"]; owns(b, "f:spec") != want {
			t.Errorf("%s: got %v", b, !want)
		}
	})
}
