// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// stuck is how long one request may take before the process counts as hanging: it costs a few calls of
// the API, each of which fails or succeeds within a minute.
const stuck = 5 * time.Minute

// progress knows how long one thing has been in hand.
type progress struct {
	now func() time.Time

	mu    sync.Mutex
	begun time.Time
}

func (p *progress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = p.now()
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = time.Time{}
}

// check implements healthz.Checker of controller-runtime. It names no request.
func (p *progress) check(*http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun.IsZero() && p.now().Sub(p.begun) > stuck {
		return fmt.Errorf("one request has been in hand for more than %v", stuck)
	}
	return nil
}
