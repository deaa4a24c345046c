// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

func sample() Status {
	return Status{APIVersion: apiVersion, Version: "1", State: "following",
		ControllerConfig: plan.ControllerConfig{ResourceVersion: "42"},
		Synced:           time.Unix(1e9, 0).UTC(),
		Files: []File{{Key: plan.Key{Field: plan.RootCAData}, Path: "/etc/kubernetes/ca.crt", Digest: plan.Digest{1},
			State:        "in place",
			Certificates: 2, Expires: time.Unix(2e9, 0).UTC()}},
		Units: []Unit{{Name: "a.service", Verb: unitplan.Reload, State: "up to date"},
			{Name: "b.service", Verb: unitplan.Reload, State: "pending"},
			{Name: "c.service", Verb: unitplan.TryRestart, State: "breaker open", Reason: "job-failed",
				BreakerOpened: time.Unix(1e9, 0).UTC()}},
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
		`node_cert_agent_file_expiry_timestamp_seconds{field="rootCAData",entry=""} 2000000000`,
		"node_cert_agent_file_writes_total 3",
		`node_cert_agent_unit_action_pending{unit="a.service"} 0`,
		`node_cert_agent_unit_action_pending{unit="b.service"} 1`,
		`node_cert_agent_unit_breaker_open{unit="b.service"} 0`,
		`node_cert_agent_unit_action_pending{unit="c.service"} 1`,
		`node_cert_agent_unit_breaker_open{unit="c.service"} 1`,
	} {
		if !strings.Contains(files[MetricsFile], line+"\n") {
			t.Errorf("metrics lack %q in\n%s", line, files[MetricsFile])
		}
	}
	if want := []string{"STATUS=following; 1 files from version 42; try-restart c.service fails again and again; 1 unit " +
		"actions pending"}; !reflect.DeepEqual(*notes, want) {
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
		"starting":                        {State: "starting"},
		"unreachable: connection refused": {State: "unreachable", Reason: "connection refused"},
		"following; 0 files from version 7": {State: "following",
			ControllerConfig: plan.ControllerConfig{ResourceVersion: "7"}},
		"following": {State: "following", Identity: &Identity{State: "active", Serial: "1"}},
		"following; identity suspect: it said 401": {State: "following",
			Identity: &Identity{State: "suspect", Reason: "it said 401", Serial: "1"}},
		"no identity: pending: patience": {State: "no identity", Reason: "pending: patience",
			Identity: &Identity{State: "pending", Reason: "patience"}},
		"following; try-restart a.service refused; 2 unit actions pending": {State: "following",
			Units: []Unit{{Name: "a.service", Verb: unitplan.TryRestart, State: "refused"},
				{State: "overdue"}, {State: "failed"}, {State: "running"}, {State: "up to date"}, {State: "not running"}}},
		"following; error: disk full; 1 refused": {State: "following", Error: "disk full",
			Refused: make([]plan.Refusal, 1)},
	} {
		if got := s.Sentence(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTheStateObjectNamesWhatIsPendingAndTheOpenBreaker(t *testing.T) {
	var o stateObject
	if err := json.Unmarshal(stateOf(sample(), "n1", time.Time{}).encode(), &o); err != nil {
		t.Fatal(err)
	}
	if o.Status.Counts.Pending != 2 || len(o.Status.Pending) != 2 || o.Status.Pending[0].Unit != "b.service" {
		t.Errorf("pending is %+v", o.Status.Pending)
	}
	want := stateBreaker{Unit: "c.service", Since: time.Unix(1e9, 0).UTC(), Reason: "job-failed"}
	if b := o.Status.Breaker; b == nil || *b != want {
		t.Errorf("the breaker is %+v, want %+v", b, want)
	}
	settled := Status{State: "following", Units: []Unit{{State: "up to date"}}}
	if strings.Contains(string(stateOf(settled, "n1", time.Time{}).encode()),
		"breaker") {
		t.Error("a breaker that is closed is reported")
	}
}

func TestAFileIsShownByTheConsumerThatStandsWorst(t *testing.T) {
	r, files, notes := capture()
	s := Status{State: "following", Files: []File{{Key: plan.Key{Field: plan.RootCAData}, Certificates: 1,
		Consumers: []Consumer{
			{Kind: liveness.ClientCA, Address: "127.0.0.1:1", State: liveness.Live},
			{Kind: liveness.Serving, Address: "127.0.0.1:2", State: liveness.Stale}}}}}
	_ = r.Publish(s)
	for _, line := range []string{
		`node_cert_agent_consumer_live{field="rootCAData",kind="clientCA",address="127.0.0.1:1"} 1`,
		`node_cert_agent_consumer_stale{field="rootCAData",kind="clientCA",address="127.0.0.1:1"} 0`,
		`node_cert_agent_consumer_live{field="rootCAData",kind="serving",address="127.0.0.1:2"} 0`,
		`node_cert_agent_consumer_stale{field="rootCAData",kind="serving",address="127.0.0.1:2"} 1`,
	} {
		if !strings.Contains(files[MetricsFile], line+"\n") {
			t.Errorf("metrics lack %q in\n%s", line, files[MetricsFile])
		}
	}
	if want := []string{"STATUS=following; 1 files not in use"}; !reflect.DeepEqual(*notes, want) {
		t.Errorf("notified %q, want %q", *notes, want)
	}
	for want, states := range map[liveness.State][]liveness.State{
		"": {}, liveness.Live: {liveness.Live, liveness.Live}, liveness.Unknown: {liveness.Live, liveness.Unknown},
		liveness.Waiting: {liveness.Waiting, liveness.Unknown}, liveness.Stale: {liveness.Waiting, liveness.Stale},
	} {
		var f File
		for _, state := range states {
			f.Consumers = append(f.Consumers, Consumer{State: state})
		}
		if got := f.Use(); got != want {
			t.Errorf("of %q got %q, want %q", states, got, want)
		}
		use := ""
		if want != "" && want != liveness.Waiting { // which would change by itself
			use = `,"use":"` + string(want) + `"`
		}
		if b := string(stateOf(Status{Files: []File{f}}, "n", time.Time{}).encode()); !strings.Contains(b,
			`"files":[{"field":"","name":""`+use+"}]") {
			t.Errorf("the state object of %q is\n%s", states, b)
		}
	}
}

// TestTheStateObjectHasOnlyWhatIsOnTheDisk: the cluster lets an old CA go because of what is in it.
func TestTheStateObjectHasOnlyWhatIsOnTheDisk(t *testing.T) {
	for state, want := range map[FileState]bool{InPlace: true, Pending: false} {
		f := File{Key: plan.Key{Field: plan.RootCAData}, State: state, Digest: plan.Digest{1}, Fingerprints: []string{"0a"}}
		b := string(stateOf(Status{Files: []File{f}}, "n", time.Time{}).encode())
		if got := strings.Contains(b, `"certificates":["0a"]`) && strings.Contains(b, `"sha256":"01`); got != want {
			t.Errorf("a file that is %s gives %s", state, b)
		}
	}
}

func TestTheSecondSourceIsShownAndAPullSecretNeverExpires(t *testing.T) {
	r, files, notes := capture()
	s := sample()
	s.ConfigMap = &Source{State: "forbidden", Reason: "not you"}
	s.Files = append(s.Files, File{Key: plan.Key{Field: plan.InternalRegistryPullSecret}, State: "in place"})
	if err := r.Publish(s); err != nil {
		t.Fatal(err)
	}
	if want := "STATUS=following; the ConfigMap: forbidden: not you; 2 files from version 42; try-restart c.service " +
		"fails again and again; 1 unit actions pending"; (*notes)[0] != want {
		t.Errorf("notified %q, want %q", (*notes)[0], want)
	}
	if m := files[MetricsFile]; !strings.Contains(m, "node_cert_agent_configmap_following 0\n") ||
		strings.Contains(m, "internalRegistryPullSecret") {
		t.Errorf("metrics are\n%s", m)
	}
	s.ConfigMap.State, s.ConfigMap.Reason = "following", ""
	if err := r.Publish(s); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(files[MetricsFile], "node_cert_agent_configmap_following 1\n") ||
		strings.Contains((*notes)[1], "ConfigMap") {
		t.Errorf("notified %q, metrics are\n%s", (*notes)[1], files[MetricsFile])
	}
}
