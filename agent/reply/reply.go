// SPDX-License-Identifier: Apache-2.0

// Package reply reads what came of an HTTP request beside its content: the fact in the error of one that
// nobody answered, and how long a server that is busy wants to be left alone.
//
// It owns the bound on the latter. It promises that the same failure has the same words at each try, so
// that whoever reports changes can compare them, and that no URL is in them. It sends nothing.
//
// Sources: RFC 9110 section 10.2.3 (Retry-After), net/url.Error, net.OpError.
package reply

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// MaxWait bounds what a server may ask for: more would look like an agent that is dead.
const MaxWait = 5 * time.Minute

// RetryAfter is how long the header of that name asks to wait, in seconds or as a date; at most MaxWait,
// and zero if it says nothing that can be read.
func RetryAfter(header http.Header, now time.Time) time.Duration {
	s := header.Get("Retry-After")
	var d time.Duration
	if n, err := strconv.Atoi(s); err == nil {
		d = time.Duration(min(n, int(MaxWait/time.Second))) * time.Second
	} else if t, err := http.ParseTime(s); err == nil {
		d = t.Sub(now)
	}
	return min(max(d, 0), MaxWait)
}

// Fact is what failed, in one line, without what differs from try to try: the URL with its query, and the
// local port.
func Fact(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if op.Addr != nil {
			return op.Op + " " + op.Addr.String() + ": " + op.Err.Error()
		}
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}
