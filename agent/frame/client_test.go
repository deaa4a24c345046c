// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// ending is a server whose first connection ends with the second request on it, of which it has taken so many
// bytes, or all of it if that is negative. A second connection is served.
func ending(t *testing.T, taken int) (c *Client, requests func() int) {
	t.Helper()
	ln := listen(t)
	asked, closed := make(chan struct{}, 8), make(chan struct{})
	serve := func(from *bufio.Reader, to net.Conn) bool {
		if _, _, err := read(from, limits); err != nil {
			return false
		}
		asked <- struct{}{}
		return write(to, "yes", nil, limits) == nil
	}
	go func() {
		first, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		from := bufio.NewReaderSize(first, 16)
		serve(from, first)
		if taken < 0 {
			_, _, _ = read(from, limits)
			asked <- struct{}{}
		} else {
			_, _ = io.CopyN(io.Discard, first, int64(taken))
		}
		_ = first.Close()
		close(closed)
		second, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		defer second.Close()
		for serve(bufio.NewReader(second), second) {
		}
	}()
	c = Dial(ln.Addr().String(), limits, limits)
	t.Cleanup(func() { _ = c.Close() })
	if _, err := ask(c, "a request that is longer than what is taken of the next"); err != nil {
		t.Fatal(err)
	}
	if taken == 0 {
		<-closed
	}
	return c, func() int { return len(asked) }
}

func TestARequestThatMayHaveBeenCarriedOutIsSentOnce(t *testing.T) {
	c, requests := ending(t, -1)
	if got, err := ask(c, 2); !errors.Is(err, io.EOF) {
		t.Errorf("answered %q, %v", got, err)
	}
	if n := requests(); n != 2 {
		t.Errorf("the servers were asked %d times for 2 things", n)
	}
	if _, err := ask(c, 3); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestARequestThatNobodyTookIsSentAgain(t *testing.T) {
	for _, taken := range []int{0, 1, 12} {
		c, requests := ending(t, taken)
		if _, err := ask(c, "a request that is not taken as a whole"); err != nil || requests() != 2 {
			t.Errorf("after %d bytes: %v, and %d requests were taken, want 2", taken, err, requests())
		}
	}
}

// over has a deadline that has passed, and is not done yet: its timer is late.
type over struct{ context.Context }

func (over) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

func TestADialThatEndsBeforeItsContextEndsAsTheContextWill(t *testing.T) {
	ln := listen(t)
	c := Dial(ln.Addr().String(), limits, limits)
	err := c.Ask(over{t.Context()}, "x", nil, func(_, _ []byte) error { return nil })
	if err != context.DeadlineExceeded { //nolint:errorlint // the dialer has an error that says it is the same
		t.Errorf("error %v", err)
	}
}
