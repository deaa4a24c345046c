// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

func TestProbesSayWhetherTheReplicaWorks(t *testing.T) {
	now := time.Unix(1000, 0)
	h := NewHealth()
	h.now = func() time.Time { return now }
	want := func(sentence, path string, code int) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != code {
			t.Errorf("%s: %s answers %d %s, want %d", sentence, path, w.Code, w.Body, code)
		}
	}
	want("at the start", "/healthz", 200)
	want("at the start", "/readyz", 503)
	h.leads(false)
	want("another leads", "/readyz", 200)
	h.leads(true)
	h.begin()
	now = now.Add(stuck)
	want("work takes long", "/healthz", 200)
	now = now.Add(time.Second)
	want("work hangs", "/healthz", 503)
	h.end(0, errors.New("x"))
	now = now.Add(24 * time.Hour)
	want("nothing to do", "/healthz", 200)
	want("elsewhere", "/debug/pprof/", 404)

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/healthz", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST answers %d", w.Code)
	}
}

func TestMetricsCountVerdicts(t *testing.T) {
	h := NewHealth()
	h.leads(true)
	h.judged(verdict.Verdict{Action: verdict.Approve})
	h.judged(verdict.Verdict{Action: verdict.Approve})
	h.judged(verdict.Verdict{Action: verdict.Pending, Check: verdict.Live, Fact: "of worker-1"})
	h.asked()
	h.begin()
	h.end(1, errors.New("of worker-2"))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		"\nnode_cert_controller_approver_leading 1\n", "\nnode_cert_controller_approver_pending_requests 1\n",
		"\nnode_cert_controller_approver_inquiries_total 1\n", "\nnode_cert_controller_approver_failures_total 1\n",
		"node_cert_controller_approver_verdicts_total{verdict=\"approve\",check=\"\"} " +
			"2\nnode_cert_controller_approver_verdicts_total{verdict=\"pending\",check=\"live identity\"} 1\n",
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %q in\n%s", want, w.Body)
		}
	}
	if strings.Contains(w.Body.String(), "worker") {
		t.Errorf("names a node:\n%s", w.Body)
	}
}
