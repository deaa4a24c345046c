// SPDX-License-Identifier: Apache-2.0

// Package wait polls for what the outside offers no event for: a file of another process, a job of
// systemd, an answer of an API server.
//
// Limit bounds each wait and is the same for all. It is no measure of speed: what takes a second takes
// that on an idle machine, and CI is not one. What has an event is not polled for.
package wait

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Limit is how long For and Until wait. Some things come once a minute and a tenth: the retry of a
// reconcile that fails, the answer to a conflict.
const Limit = 2 * time.Minute

// For returns when done is true, and otherwise ends the test.
func For(t testing.TB, what string, done func() bool) {
	t.Helper()
	if err := Until(t.Context(), what, done); err != nil {
		t.Fatal(err)
	}
}

// Until returns when done is true. When ctx ends or Limit has passed, the error says what did not come about.
func Until(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	err := Success(ctx, func() error {
		if done() {
			return nil
		}
		return context.DeadlineExceeded
	})
	if err != nil {
		return fmt.Errorf("%s did not come about: %w", what, ctx.Err())
	}
	return nil
}

// Success calls try until it returns nil. When ctx ends, it returns the last error of try.
func Success(ctx context.Context, try func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
