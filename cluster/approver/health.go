// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// stuck is how long one request may take before the process counts as hanging: it costs a few calls of
// the API, each of which fails or succeeds within a minute.
const stuck = 5 * time.Minute

// Health is what a replica knows of itself, for probes and for Prometheus. Make it with NewHealth.
type Health struct {
	now func() time.Time

	mu              sync.Mutex
	elected         bool
	leading         bool
	begun           time.Time // of what is in hand
	pendingRequests int
	failures        int
	inquiries       int
	verdicts        map[verdictLabels]int
}

type verdictLabels struct {
	action verdict.Action
	check  verdict.Check
}

// NewHealth makes a Health of a replica that has not begun.
func NewHealth() *Health { return &Health{now: time.Now, verdicts: map[verdictLabels]int{}} }

// ServeHTTP answers GET of /healthz (200 unless the work hangs), /readyz (200 once the API server has
// said who leads, which may be another replica) and /metrics (text format of Prometheus). The answers
// hold no names of nodes or requests.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hangs := !h.begun.IsZero() && h.now().Sub(h.begun) > stuck
	switch {
	case r.Method != http.MethodGet:
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
	case r.URL.Path == "/metrics":
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		h.metrics(w)
	case r.URL.Path == "/healthz" && hangs:
		http.Error(w, fmt.Sprintf("one request has been in hand for more than %v", stuck), http.StatusServiceUnavailable)
	case r.URL.Path == "/readyz" && !h.elected:
		http.Error(w, "no leader is known: the API server has not answered yet", http.StatusServiceUnavailable)
	case r.URL.Path == "/healthz" || r.URL.Path == "/readyz":
		_, _ = io.WriteString(w, "ok\n") // whoever asks may be gone
	default:
		http.NotFound(w, r)
	}
}

func (h *Health) metrics(w io.Writer) {
	leading := 0
	if h.leading {
		leading = 1
	}
	fmt.Fprintf(w, "# HELP node_cert_controller_approver_leading Whether this replica decides.\n"+
		"# TYPE node_cert_controller_approver_leading gauge\nnode_cert_controller_approver_leading %d\n", leading)
	fmt.Fprintf(w, "# HELP node_cert_controller_approver_pending_requests Requests that wait for a decision.\n"+
		"# TYPE node_cert_controller_approver_pending_requests gauge\n"+
		"node_cert_controller_approver_pending_requests %d\n", h.pendingRequests)
	fmt.Fprintf(w, "# HELP node_cert_controller_approver_inquiries_total Requests about which the API server was asked; "+
		"others stay pending by what is watched.\n"+
		"# TYPE node_cert_controller_approver_inquiries_total counter\nnode_cert_controller_approver_inquiries_total %d\n", h.inquiries)
	fmt.Fprintf(w, "# HELP node_cert_controller_approver_failures_total Tries that failed and are repeated.\n"+
		"# TYPE node_cert_controller_approver_failures_total counter\nnode_cert_controller_approver_failures_total %d\n", h.failures)
	fmt.Fprint(w, "# HELP node_cert_controller_approver_verdicts_total Verdicts by action and by the check that decided; a "+
		"pending request counts once for each reason.\n"+
		"# TYPE node_cert_controller_approver_verdicts_total counter\n")
	for _, l := range slices.SortedFunc(maps.Keys(h.verdicts), func(a, b verdictLabels) int {
		return strings.Compare(a.action.String()+string(a.check), b.action.String()+string(b.check))
	}) {
		fmt.Fprintf(w, "node_cert_controller_approver_verdicts_total{verdict=%q,check=%q} %d\n", l.action, l.check, h.verdicts[l])
	}
}

// leads notes who leads: this replica or another.
func (h *Health) leads(we bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elected, h.leading = true, we
}

func (h *Health) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun = h.now()
}

// end notes that nothing is in hand, and how many requests are pending.
func (h *Health) end(pending int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun, h.pendingRequests = (time.Time{}), pending
	if err != nil {
		h.failures++
	}
}

func (h *Health) asked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inquiries++
}

func (h *Health) judged(v verdict.Verdict) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.verdicts[verdictLabels{v.Action, v.Check}]++
}
