// SPDX-License-Identifier: Apache-2.0

package wait_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

func TestAWaitEndsWithWhatItWaitsFor(t *testing.T) {
	n := 0
	wait.For(t, "the third", func() bool { n++; return n == 3 })
	if n != 3 {
		t.Errorf("asked %d times", n)
	}
}

func TestAWaitEndsWithItsContextAndSaysWhatDidNotCome(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := wait.Until(ctx, "a file", func() bool { cancel(); return false })
	if !errors.Is(err, context.Canceled) || err.Error() != "a file did not come about: context canceled" {
		t.Error(err)
	}
	if err := wait.Success(ctx, func() error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Errorf("the last error is %v", err)
	}
	if err := wait.Until(ctx, "what is there", func() bool { return true }); err != nil {
		t.Error(err)
	}
}
