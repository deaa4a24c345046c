// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// ErrAnswer says that what came is no answer of an etcd.
var ErrAnswer = errors.New("not an answer of etcd")

// Code is the status of a call as gRPC numbers it.
type Code uint32

// The codes that etcd gives, and some of what each is for.
const (
	OK                 Code = 0
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5 // no such lease
	PermissionDenied   Code = 7 // authentication is on, and the user may not
	ResourceExhausted  Code = 8 // no space, too many requests
	FailedPrecondition Code = 9
	Unavailable        Code = 14 // no leader, a leader that changes, a request that timed out
	Unauthenticated    Code = 16
)

var codeNames = map[Code]string{OK: "OK", InvalidArgument: "invalid argument", DeadlineExceeded: "deadline exceeded",
	NotFound: "not found", PermissionDenied: "permission denied", ResourceExhausted: "resource exhausted",
	FailedPrecondition: "failed precondition", Unavailable: "unavailable", Unauthenticated: "unauthenticated"}

// String is the name in words, or the number.
func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return "gRPC status " + strconv.FormatUint(uint64(c), 10)
}

// StatusError is what the server says of a call that it did not do, or does not know the end of.
type StatusError struct {
	Code    Code
	Message string // of the server, printable
}

// Error implements error.
func (e *StatusError) Error() string { return e.Code.String() + ": " + e.Message }

// judge says whether an answer, read to its end, is one of gRPC that reports success. The status is in the trailer, or
// in the header if there is no message.
func judge(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: HTTP status %d", ErrAnswer, resp.StatusCode)
	}
	from := resp.Trailer
	if from.Get("Grpc-Status") == "" {
		from = resp.Header
	}
	code, err := strconv.ParseUint(from.Get("Grpc-Status"), 10, 32)
	if err != nil {
		return fmt.Errorf("%w: no gRPC status", ErrAnswer)
	}
	if code == 0 {
		return nil
	}
	message := from.Get("Grpc-Message")
	if plain, err := url.PathUnescape(message); err == nil {
		message = plain
	}
	return &StatusError{Code(code), printable.Text(message)}
}

// message takes the one message out of the body of an answer: a byte that says whether it is compressed, its length in
// four bytes, and itself.
func message(body []byte) ([]byte, error) {
	const prefix = 5
	switch {
	case len(body) < prefix:
		return nil, fmt.Errorf("%w: no whole message", ErrAnswer)
	case body[0] != 0:
		return nil, fmt.Errorf("%w: a compressed message", ErrAnswer)
	}
	length := uint64(body[1])<<24 | uint64(body[2])<<16 | uint64(body[3])<<8 | uint64(body[4])
	if length != uint64(len(body)-prefix) {
		return nil, fmt.Errorf("%w: a message of %d bytes in %d", ErrAnswer, length, len(body)-prefix)
	}
	return body[prefix:], nil
}
