// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

// odd is a label value with all that the format escapes, and what it does not.
const odd = "a\\b\"c\nd\x07é"

func agentsMetrics(t *testing.T, s report.Status) (text string) {
	t.Helper()
	r := report.New(func(name string, data []byte) error {
		if name == report.MetricsFile {
			text = string(data)
		}
		return nil
	}, false)
	if err := r.Publish(s); err != nil {
		t.Fatal(err)
	}
	return text
}

func full() report.Status {
	file := report.File{Key: plan.Key{Field: plan.RootCAData}, Certificates: 1, Expires: time.Now(),
		Consumers: []report.Consumer{{Kind: liveness.ClientCA, Address: "[::1]:10250", State: liveness.Live}}}
	other := report.File{Key: plan.Key{Field: plan.ImageRegistryBundleData, Name: odd}, Certificates: 1}
	return report.Status{State: "following", ConfigMap: &report.Source{}, Identity: &report.Identity{State: "active"},
		Files: []report.File{file, other}, Units: []report.Unit{{Name: "a.service"}, {Name: `b\x2dc.service`}}}
}

func TestPrometheusReadsTheMetricsAndItsLinterIsContent(t *testing.T) {
	for name, text := range map[string]string{
		"agent": agentsMetrics(t, full()), "agent that has seen nothing": agentsMetrics(t, report.Status{}),
	} {
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Errorf("%s: %v in\n%s", name, err, text)
		}
		for _, p := range problems {
			t.Errorf("%s: %s: %s", name, p.Metric, p.Text)
		}
	}
}

func TestALabelIsReadAsItWasWritten(t *testing.T) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(agentsMetrics(t, full())))
	if err != nil {
		t.Fatal(err)
	}
	for family, want := range map[string]string{
		"node_cert_agent_file_certificates": odd, "node_cert_agent_unit_action_pending": `b\x2dc.service`,
	} {
		found := false
		for _, m := range families[family].GetMetric() {
			for _, l := range m.GetLabel() {
				found = found || l.GetValue() == want
			}
		}
		if !found {
			t.Errorf("no sample of %s has the label value %q", family, want)
		}
	}
}
