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
		sentence     string
		uid, version string
		heartbeat    string
		minute       int
		want         int
	}{
		{"it was there when we began to look", "u", "8", "a", 0, 0},
		{"it is read again", "u", "8", "a", 30, 0},
		{"our notes or an annotation changed", "u", "9", "a", 40, 0},
		{"the node wrote", "u", "10", "c", 50, 50},
		{"an event comes late", "u", "9", "a", 60, 50},
		{"it is read again after that", "u", "10", "c", 61, 50},
		{"the node wrote, and its clock went back", "u", "11", "b", 70, 70},
		{"it was deleted and the node wrote it anew", "v", "12", "b", 80, 80},
	} {
		state := nodeState{ObjectMeta: meta.ObjectMeta{Name: "a", UID: types.UID(step.uid), ResourceVersion: step.version}}
		state.Status.Heartbeat = step.heartbeat
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
		state := parse(t, `{"metadata":{"name":"a","uid":"u","creationTimestamp":null,
			"managedFields":[{"manager":"node-cert-agent","operation":"Apply","time":"2031-01-01T00:00:00Z",
			"fieldsV1":{"f:status":{}}}]},
			"status":{"state":"synced","heartbeat":"`+forged+`","identity":{"expires":"`+forged+`"}}}`)
		s := heartbeats{of: map[string]heartbeat{}}
		if i := state.identity(s.see(state, begin)); i == nil || !i.Heartbeat.Equal(begin) {
			t.Errorf("%s: %+v", forged, i)
		}
	}
}
