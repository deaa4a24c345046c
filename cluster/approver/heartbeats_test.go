// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"testing"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestANodeIsSeenWhenItsReportChangesByOurOwnClock(t *testing.T) {
	begin := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	s := heartbeats{of: map[string]heartbeat{}}
	for _, step := range []struct {
		sentence   string
		uid        string
		generation int64
		minute     int
		want       int
	}{
		{"it was there when we began to look", "u", 7, 0, 0},
		{"it is read again", "u", 7, 30, 0},
		{"its status or an annotation changed", "u", 7, 40, 0},
		{"the node wrote", "u", 8, 50, 50},
		{"an event comes late", "u", 7, 60, 50},
		{"it was deleted and the node wrote it anew", "v", 1, 70, 70},
	} {
		state := nodeState{ObjectMeta: meta.ObjectMeta{Name: "a", UID: types.UID(step.uid), Generation: step.generation}}
		at := begin.Add(time.Duration(step.minute) * time.Minute)
		if got := s.see(state, at); !got.Equal(begin.Add(time.Duration(step.want) * time.Minute)) {
			t.Errorf("%s: seen at %v, want minute %d", step.sentence, got, step.want)
		}
	}
	s.forget("a")
	if len(s.of) != 0 {
		t.Error("a state that is gone is remembered")
	}
}

func TestWhatANodeForgesDoesNotMakeItLookAliveOrDead(t *testing.T) {
	begin := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, forged := range []string{"2031-01-01T00:00:00Z", "2001-01-01T00:00:00Z", "yesterday"} {
		state := parse(t, `{"metadata":{"name":"a","uid":"u","generation":3,"creationTimestamp":null,
			"managedFields":[{"manager":"node-cert-agent","operation":"Apply","time":"2031-01-01T00:00:00Z",
			"fieldsV1":{"f:spec":{}}}]},
			"spec":{"state":"synced","heartbeat":"`+forged+`","identity":{"expires":"`+forged+`"}}}`)
		s := heartbeats{of: map[string]heartbeat{}}
		if i := state.identity(s.see(state, begin)); i == nil || !i.Heartbeat.Equal(begin) {
			t.Errorf("%s: %+v", forged, i)
		}
	}
}
