// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

func TestMetricsCountVerdictsAndNameNoNode(t *testing.T) {
	m, r := newMetrics(func() int { return 3 }), prometheus.NewPedanticRegistry()
	if err := m.register(r); err != nil {
		t.Fatal(err)
	}
	m.judged(verdict.Verdict{Action: verdict.Approve})
	m.judged(verdict.Verdict{Action: verdict.Approve})
	m.judged(verdict.Verdict{Action: verdict.Pending, Check: verdict.Live, Fact: "of worker-1"})
	m.inquiries.Inc()
	m.failures.Inc()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := w.Body.String()
	for _, want := range []string{
		"\nnode_cert_controller_approver_pending_requests 3\n",
		"\nnode_cert_controller_approver_inquiries_total 1\n", "\nnode_cert_controller_approver_failures_total 1\n",
		"\nnode_cert_controller_approver_verdicts_total{check=\"\",verdict=\"approve\"} 2\n",
		"\nnode_cert_controller_approver_verdicts_total{check=\"live identity\",verdict=\"pending\"} 1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "worker") {
		t.Errorf("names a node:\n%s", text)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("the linter of Prometheus: %v, %v", problems, err)
	}
}
