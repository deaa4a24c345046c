// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// metrics are what Prometheus reads of the approver. No label names a node or a request.
type metrics struct {
	pending             prometheus.GaugeFunc
	inquiries, failures prometheus.Counter
	verdicts            *prometheus.CounterVec
}

func newMetrics(pending func() int) *metrics {
	const prefix = "node_cert_controller_approver_"
	return &metrics{
		pending: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "pending_requests",
			Help: "Requests that wait for a decision."}, func() float64 { return float64(pending()) }),
		inquiries: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "inquiries_total",
			Help: "Requests about which the API server was asked; others stay pending by what is watched."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "failures_total",
			Help: "Tries that failed and are repeated."}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "verdicts_total",
			Help: "Verdicts by action and by the check that decided; a pending request counts once for each reason."},
			[]string{"verdict", "check"}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.pending, m.inquiries, m.failures, m.verdicts} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) judged(v verdict.Verdict) {
	m.verdicts.WithLabelValues(v.Action.String(), string(v.Check)).Inc()
}
