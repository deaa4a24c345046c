// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsInHandOutlivesTheEndOfTheProcessForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		work, done := outlive(ctx)
		defer done()
		begin := time.Now()
		end()
		synctest.Wait()
		if work.Err() != nil {
			t.Error("it is cut off at once")
		}
		<-work.Done()
		if took := time.Since(begin); took != finish {
			t.Errorf("it may take %v, want %v", took, finish)
		}
	})
}
