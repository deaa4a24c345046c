// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
)

// noCredential waits for somebody as whom to ask.
func (k *Keeper) noCredential(ctx context.Context) transition {
	if k.current != nil {
		if m, h := k.examine(ctx); h == holds {
			return m
		}
	}
	if k.credentials.next(k.opt.Clock.Now()) != nil {
		return transition{Requesting, "", 0}
	}
	return transition{NoCredential, k.credentials.why(), k.opt.Times.PollInterval}
}
