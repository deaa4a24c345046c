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

func TestANodeHasAnIdentityOnceItReported(t *testing.T) {
	for sentence, c := range map[string]struct {
		object string
		want   bool
	}{
		"never written":         {`{"metadata":{"name":"a"}}`, false},
		"made by the approver":  {`{"metadata":{"name":"a"},"spec":{"bootstrap":{"request":"r"},"knownSince":"x"}}`, false},
		"annotated by somebody": {`{"metadata":{"annotations":{"a":"b"}}}`, false},
		"written by the agent":  {`{"status":{"state":"following"}}`, true},
		"with its key":          {`{"status":{"identity":{"publicKey":"x"}}}`, true},
	} {
		if i := parse(t, c.object).identity(time.Unix(1, 0)); (i != nil) != c.want {
			t.Errorf("%s: %+v", sentence, i)
		}
	}
}

func TestAnUnreadableTimeIsNone(t *testing.T) {
	s := parse(t, `{"status":{"state":"x","identity":{"issued":"yesterday","expires":"2026-11-22T10:00:00.5+01:00"}}}`)
	if i := s.identity(time.Time{}); !i.Issued.IsZero() || i.Expires.UTC().Hour() != 9 {
		t.Errorf("got %+v", i)
	}
}
