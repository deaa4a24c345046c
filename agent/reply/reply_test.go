// SPDX-License-Identifier: Apache-2.0

package reply_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/reply"
)

func TestAServerIsLeftAloneForAsLongAsItAsksAndNotForLonger(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"":                              0,
		"soon":                          0,
		"-7":                            0,
		"7":                             7 * time.Second,
		"31536000":                      reply.MaxWait,
		"99999999999999999999":          0, // no number that fits, and no date
		"Sat, 21 Nov 2026 12:01:30 GMT": 90 * time.Second,
		"Sat, 21 Nov 2026 11:00:00 GMT": 0,
		"Sun, 21 Nov 2027 12:00:00 GMT": reply.MaxWait,
	} {
		if got := reply.RetryAfter(http.Header{"Retry-After": {header}}, now); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

func TestAFailureHasTheSameWordsAtEachTry(t *testing.T) {
	to := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443}
	for want, err := range map[string]error{
		"dial 192.0.2.1:6443: connection refused": &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: syscall.ECONNREFUSED},
		"read 192.0.2.1:6443: connection reset by peer": &url.Error{Op: "Get", URL: "https://geheim/?token=geheim",
			Err: &net.OpError{Op: "read", Net: "tcp",
				Source: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 40000}, Addr: to, Err: syscall.ECONNRESET}},
		"dial: no such host": fmt.Errorf("once more: %w", &net.OpError{Op: "dial", Net: "tcp",
			Err: errors.New("no such host")}),
		"an end":        &url.Error{Op: "Post", URL: "https://geheim", Err: errors.New("an end")},
		"anything else": errors.New("anything else"),
	} {
		if got := reply.Fact(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
