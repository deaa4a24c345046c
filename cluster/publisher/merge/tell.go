// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

// Reasons of the condition Published, beside its own name. The first two leave what is published, the others publish
// nothing.
const (
	LastGood         Reason = "LastGood"
	Refused          Reason = "Refused"
	NothingToPublish Reason = "NothingToPublish"
	Lost             Reason = "Lost"
)

func (m *merging) publish(status metav1.ConditionStatus, reason Reason, message string) {
	m.condition(v1alpha1.Published, status, reason, message)
}

func (m *merging) condition(kind string, status metav1.ConditionStatus, reason Reason, message string) {
	m.result.Conditions = append(m.result.Conditions,
		metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

// tell makes the conditions that do not depend on what came of the join.
func (m *merging) tell() {
	switch {
	case len(m.problems) > 0:
		all := make([]string, len(m.problems))
		for i, p := range m.problems {
			all[i] = p.String()
		}
		m.condition(v1alpha1.SourcesReady, metav1.ConditionFalse, m.problems[0].reason, strings.Join(all, "; "))
	case len(m.warnings) > 0:
		m.condition(v1alpha1.SourcesReady, metav1.ConditionTrue, "Questionable", strings.Join(m.warnings, "; "))
	default:
		m.condition(v1alpha1.SourcesReady, metav1.ConditionTrue, "Ready", "")
	}
	if len(m.kept) == 0 {
		m.condition(v1alpha1.Converged, metav1.ConditionTrue, v1alpha1.Converged, "")
		return
	}
	k := m.kept[0]
	message := fmt.Sprintf("%s since %s: %s", name(k.fingerprint), k.since.UTC().Format(time.RFC3339), k.why)
	if more := len(m.kept) - 1; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	m.condition(v1alpha1.Converged, metav1.ConditionFalse, k.reason, message)
}
