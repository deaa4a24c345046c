// SPDX-License-Identifier: Apache-2.0

//go:build real

package host_test

import (
	"regexp"
	"strconv"
	"testing"
)

var exposure = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

func TestTheSandboxesScoreAsPromised(t *testing.T) {
	h := bootUnits(t)
	for unit, limit := range map[string]float64{
		"node-cert-agent.service":          1.1,
		"node-cert-agent-writer.service":   0.9,
		"node-cert-agent-reloader.service": 1.1,
		"node-cert-agent-signer.service":   1.2,
		"node-cert-agent-renew.service":    1.2,
	} {
		out := run(t, h, "systemd-analyze", "security", "--no-pager", unit)
		m := exposure.FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("%s has no score:\n%s", unit, out)
		}
		score, err := strconv.ParseFloat(m[1], 64)
		t.Logf("%s: %.1f", unit, score)
		if err != nil || score > limit {
			t.Errorf("%s scores %s, want %.1f or better:\n%s", unit, m[1], limit, out)
		}
	}
}
