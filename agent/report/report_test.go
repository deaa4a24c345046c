// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func sample() Status {
	return Status{Version: "1", State: "following", Object: plan.Object{ResourceVersion: "42"}, Synced: time.Unix(1e9, 0).UTC(),
		Files: []File{{Key: plan.Key{Row: plan.RootCAData}, Path: "/etc/kubernetes/ca.crt", Digest: plan.Digest{1}, State: "in place",
			Certificates: 2, Expires: time.Unix(2e9, 0).UTC()}},
		Units:  []Unit{{Name: "a.service", Verb: plan.Reload, State: "loaded"}, {Name: "b.service", Verb: plan.Reload, State: "owed"}},
		Writes: 3}
}

// capture is a reporter whose files and notifications are kept.
func capture() (*Reporter, map[string]string, *[]string) {
	files, notes := map[string]string{}, &[]string{}
	r := New(func(name string, data []byte) error { files[name] = string(data); return nil }, false)
	r.notify = func(s string) error { *notes = append(*notes, s); return nil }
	return r, files, notes
}

func TestPublishShowsTheSameFactsThreeTimes(t *testing.T) {
	r, files, notes := capture()
	if err := r.Publish(sample()); err != nil {
		t.Fatal(err)
	}
	var back Status
	if err := json.Unmarshal([]byte(files[StatusFile]), &back); err != nil || !reflect.DeepEqual(back, sample()) {
		t.Errorf("status.json reads back as %+v, %v", back, err)
	}
	for _, line := range []string{
		"node_cert_agent_following 1",
		"node_cert_agent_synced_timestamp_seconds 1000000000",
		`node_cert_agent_file_expiry_timestamp_seconds{row="rootCAData",entry=""} 2000000000`,
		"node_cert_agent_file_writes_total 3",
		`node_cert_agent_unit_owed{unit="a.service"} 0`,
		`node_cert_agent_unit_owed{unit="b.service"} 1`,
	} {
		if !strings.Contains(files[MetricsFile], line+"\n") {
			t.Errorf("metrics lack %q in\n%s", line, files[MetricsFile])
		}
	}
	if want := []string{"STATUS=following; 1 files from version 42; 1 unit actions owed"}; !reflect.DeepEqual(*notes, want) {
		t.Errorf("notified %q, want %q", *notes, want)
	}
}

func TestWhatDidNotChangeIsNotPublishedAgain(t *testing.T) {
	r, files, notes := capture()
	_ = r.Publish(sample())
	clear(files)
	_ = r.Publish(sample())
	if len(files) != 0 || len(*notes) != 1 {
		t.Errorf("wrote %d files, %d notifications", len(files), len(*notes))
	}
}

func TestAFailedWriteIsTriedAgain(t *testing.T) {
	r, files, _ := capture()
	write := r.write
	r.write = func(string, []byte) error { return errors.New("no space left on device") }
	if err := r.Publish(sample()); err == nil {
		t.Fatal("the error was lost")
	}
	r.write = write
	if err := r.Publish(sample()); err != nil || len(files) != 2 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

func TestSentences(t *testing.T) {
	for want, s := range map[string]Status{
		"starting":                                 {State: "starting"},
		"unreachable: connection refused":          {State: "unreachable", Reason: "connection refused"},
		"following; 0 files from version 7":        {State: "following", Object: plan.Object{ResourceVersion: "7"}},
		"following":                                {State: "following", Identity: &Identity{State: "active", Serial: "1"}},
		"following; identity suspect: it said 401": {State: "following", Identity: &Identity{State: "suspect", Reason: "it said 401", Serial: "1"}},
		"no identity: pending: patience":           {State: "no identity", Reason: "pending: patience", Identity: &Identity{State: "pending", Reason: "patience"}},
		"following; trouble: disk full; 1 refused": {State: "following", Trouble: "disk full", Refused: make([]plan.Refusal, 1)},
	} {
		if got := s.Sentence(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
