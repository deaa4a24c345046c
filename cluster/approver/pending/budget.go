// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"sync"
	"time"
)

// Budget bounds what each requester may cost in a round. It is safe for concurrent use.
type Budget struct {
	share int
	round time.Duration

	mu     sync.Mutex
	rounds map[string]round
}

type round struct {
	began time.Time
	taken int
}

// forget is at how many requesters the budget looks for those whose round is over.
const forget = 4096

// NewBudget makes one of share things in each round, for every requester.
func NewBudget(share int, length time.Duration) *Budget {
	return &Budget{share: share, round: length, rounds: map[string]round{}}
}

// Free is when the requester may have one thing more: now, or when the next round begins.
func (b *Budget) Free(requester string, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.current(requester, now); r.taken >= b.share {
		return r.began.Add(b.round)
	}
	return now
}

// Take takes one thing.
func (b *Budget) Take(requester string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.current(requester, now)
	if r.taken == 0 {
		r.began = now
	}
	r.taken++
	b.rounds[requester] = r
	if len(b.rounds) >= forget {
		for who := range b.rounds {
			if b.current(who, now).taken == 0 {
				delete(b.rounds, who)
			}
		}
	}
}

// current is zero where the last round is over.
func (b *Budget) current(requester string, now time.Time) round {
	if r := b.rounds[requester]; now.Before(r.began.Add(b.round)) {
		return r
	}
	return round{}
}
