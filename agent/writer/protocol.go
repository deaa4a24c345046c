// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/frame"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

const (
	// replyTarget is the content after which a reply ends, in bytes.
	replyTarget = 1 << 20
	// overhead of one answer beside its content, generously.
	overhead = 1 << 10
	// batch is how many keys a client sends in one request, so that their JSON stays within requests:
	// the longest, with a registry's name of 255 bytes and a digest, takes less than 450 bytes.
	batch = 512

	// The compiler checks: a constant of this type cannot be negative.
	_ = uint(maxText - batch*450 - maxReason)
	_ = uint(maxReplyContent - replyTarget - disk.MaxSize)
	_ = uint(maxContent - disk.MaxSize)
)

// What a frame may be. Each value of the JSON takes a comma or a bracket, and a query at least two:
// one request asks for no more than 4096 files.
const (
	maxText         = 256 << 10
	maxContent      = 8 << 20
	maxReplyContent = 8 << 20
)

var (
	requests = frame.Limits{Text: maxText, Content: maxContent, Values: 8192}
	replies  = frame.Limits{Text: 4 << 20, Content: maxReplyContent, Values: 1 << 17}
)

// request holds exactly one of its first five fields.
type request struct {
	Observe []plan.Query `json:"observe,omitempty"`
	Commit  *plan.Commit `json:"commit,omitempty"`
	Sweep   bool         `json:"sweep,omitempty"`
	// Bootstrap asks for the bootstrap credentials, Consume takes one out of use.
	Bootstrap bool        `json:"bootstrap,omitempty"`
	Consume   plan.Digest `json:"consume,omitzero"`
	// Files are the definitions that the caller knows of files that it asks for. Where the server knows
	// another, the two have read the configuration at different times, and a key means another file.
	Files map[plan.Field]plan.Digest `json:"files,omitempty"`
	// Sizes of the contents of Commit's writes, in bytes. The contents follow the JSON, because to
	// decode them from base64 would take longer than to bring them to the disk.
	Sizes []int `json:"sizes,omitempty"`
}

// parts counts what a request asks for.
func (q request) parts() (n int) {
	for _, asked := range []bool{q.Observe != nil, q.Commit != nil, q.Sweep, q.Bootstrap, q.Consume != plan.Digest{}} {
		if asked {
			n++
		}
	}
	return n
}

// keys are those of what the request is about.
func (q request) keys() (all []plan.Key) {
	for _, o := range q.Observe {
		all = append(all, o.Key)
	}
	if q.Commit != nil {
		for _, w := range q.Commit.Writes {
			all = append(all, w.Key)
		}
		for _, r := range q.Commit.Removals {
			all = append(all, r.Key)
		}
	}
	return all
}

// lines is about how many a request adds to the log.
func (q request) lines() int {
	switch {
	case q.Commit != nil:
		return 1 + len(q.Commit.Writes) + len(q.Commit.Removals)
	case q.Bootstrap || q.Consume != plan.Digest{}:
		return 2
	}
	return 0
}

// detach parts a request from its contents.
func (q request) detach() (request, [][]byte) {
	if q.Commit == nil {
		return q, nil
	}
	bare := plan.Commit{Writes: slices.Clone(q.Commit.Writes), Removals: q.Commit.Removals}
	var contents [][]byte
	for i := range bare.Writes {
		contents = append(contents, bare.Writes[i].Data)
		bare.Writes[i].Data = nil
	}
	q.Commit, q.Sizes = &bare, frame.Sizes(contents)
	return q, contents
}

// attach undoes detach.
func (q *request) attach(content []byte) error {
	var into []*[]byte
	if q.Commit != nil {
		for i := range q.Commit.Writes {
			into = append(into, &q.Commit.Writes[i].Data)
		}
	}
	return frame.Attach(into, q.Sizes, content)
}

type reply struct {
	Files   []plan.File `json:"files,omitempty"`
	Removed []string    `json:"removed,omitempty"`
	// Credentials answer Bootstrap; their contents come after those of Files, of which there are none.
	Credentials []bootstrap.Credential `json:"credentials,omitempty"`
	Done        string                 `json:"done,omitempty"`
	Error       *Error                 `json:"error,omitempty"`
	// Sizes of the contents of Files, as in request.
	Sizes []int `json:"sizes,omitempty"`

	tooOften bool // nothing was done, because the limit is reached
}

func (r reply) detach() (reply, [][]byte) {
	r.Files = slices.Clone(r.Files)
	var contents [][]byte
	for i := range r.Files {
		contents = append(contents, r.Files[i].Data)
		r.Files[i].Data = nil
	}
	for _, c := range r.Credentials {
		contents = append(contents, c.Content.Reveal())
	}
	r.Sizes = frame.Sizes(contents)
	return r, contents
}

func (r *reply) attach(content []byte) error {
	var into []*[]byte
	for i := range r.Files {
		into = append(into, &r.Files[i].Data)
	}
	credentials := make([][]byte, len(r.Credentials))
	for i := range credentials {
		into = append(into, &credentials[i])
	}
	if err := frame.Attach(into, r.Sizes, content); err != nil {
		return err
	}
	for i, c := range credentials {
		r.Credentials[i].Content = secret.New(c)
	}
	return nil
}

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
