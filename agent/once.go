// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

// Once does what one turn of Run does and sees the unit actions through, for a command: it returns
// when nothing is pending any more, or with the status as it is when ctx ends.
func (a *Agent) Once(ctx context.Context) (report.Status, error) {
	l := a.loop()
	l.once = true
	if err := l.begin(ctx); err != nil {
		return report.Status{}, err
	}
	for l.actions.Busy() || l.trust.proving {
		select {
		case <-ctx.Done():
			return l.status(), nil
		case j := <-l.actions.Jobs():
			l.actions.Ended(j)
		case p := <-l.trust.proofs:
			l.trust.take(p)
		case <-l.schedule.wake(l.timers()):
		}
		l.reconcile(ctx)
	}
	return l.status(), nil
}
