// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
)

// noCredential waits for a credential to ask with.
func (m *Manager) noCredential(ctx context.Context) transition {
	if m.current != nil {
		if t, h := m.examine(ctx); h == holds {
			return t
		}
	}
	if m.credentials.next(m.opt.Clock.Now()) != nil {
		return transition{Requesting, "", 0}
	}
	return transition{NoCredential, m.credentials.why(), m.opt.Times.PollInterval}
}
