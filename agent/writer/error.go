// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"errors"
	"fmt"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
)

// errorKind says what a caller can do about an Error.
type errorKind string

// The kinds of errors.
const (
	// refused asks for what is not allowed; asking again does not help.
	refused errorKind = "refused"
	// failed could not be done, wholly or in part: look again, plan again, try later.
	failed errorKind = "failed"
	// readOnly could not be done because this writer's view of the file system is read-only or stale.
	// The process ends, and the next request meets a new one.
	readOnly errorKind = "read-only"
	// unavailable was not answered: no writer runs, or it ended meanwhile. Whether a commit was done
	// is unknown.
	unavailable errorKind = "unavailable"
)

// Error is how every method of Local and Client fails, apart from an ended context. Text is one line
// and holds no content of files.
type Error struct {
	Kind errorKind `json:"kind"`
	Text string    `json:"text"`
	// Untouched is set if the request is known to have changed nothing that can be seen.
	Untouched bool `json:"untouched,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return "writer " + string(e.Kind) + ": " + e.Text }

// NothingChanged reports whether a commit failed before it changed anything.
func (e *Error) NothingChanged() bool { return e.Untouched }

// Unavailable tells whether err is that no writer answered: its socket is not there, or the process ended.
func Unavailable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == unavailable
}

func refuse(format string, args ...any) error {
	return &Error{Kind: refused, Text: fmt.Sprintf(format, args...), Untouched: true}
}

// failure classifies an error of package disk.
func failure(err error) error {
	e := &Error{Kind: failed, Text: err.Error(), Untouched: errors.Is(err, disk.ErrUntouched)}
	if errors.Is(err, disk.ErrReadOnly) || errors.Is(err, disk.ErrReplaced) {
		e.Kind = readOnly
	}
	return e
}
