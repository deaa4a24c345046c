// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

const (
	version  = 1
	headSize = 1 + 4 + 4
	maxFrame = 16 << 20
	// enough content for one reply: with one more file of disk.MaxSize, it still fits a frame.
	enough = 8 << 20
	// overhead of one answer beside its content, generously.
	overhead = 1 << 10
	// patience with a peer that began a frame, and with one that does not read its reply.
	patience = 10 * time.Second

	// The compiler checks the sum above: a constant of this type cannot be negative.
	_ = uint(maxFrame - enough - disk.MaxSize - 64*overhead)
)

// request holds exactly one of its first five fields.
type request struct {
	Observe []plan.Query `json:"observe,omitempty"`
	Commit  *plan.Commit `json:"commit,omitempty"`
	Sweep   bool         `json:"sweep,omitempty"`
	// Bootstrap asks for the bootstrap credentials, Consume takes one out of use.
	Bootstrap bool        `json:"bootstrap,omitempty"`
	Consume   plan.Digest `json:"consume,omitzero"`
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
	q.Commit, q.Sizes = &bare, sizes(contents)
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
	return attach(into, q.Sizes, content)
}

type reply struct {
	Files   []plan.File `json:"files,omitempty"`
	Removed []string    `json:"removed,omitempty"`
	// Credentials answer Bootstrap; their contents come after those of Files, of which there are none.
	Credentials []credential `json:"credentials,omitempty"`
	Done        string       `json:"done,omitempty"`
	Error       *Error       `json:"error,omitempty"`
	// Sizes of the contents of Files, as in request.
	Sizes []int `json:"sizes,omitempty"`
}

// credential is a Credential on its way. The content is not a secret.Bytes: those do not travel.
type credential struct {
	Name    string      `json:"name"`
	Digest  plan.Digest `json:"digest,omitzero"`
	Refused string      `json:"refused,omitempty"`
	Content []byte      `json:"content,omitempty"`
}

func (r reply) detach() (reply, [][]byte) {
	r.Files, r.Credentials = slices.Clone(r.Files), slices.Clone(r.Credentials)
	var contents [][]byte
	for i := range r.Files {
		contents = append(contents, r.Files[i].Data)
		r.Files[i].Data = nil
	}
	for i := range r.Credentials {
		contents = append(contents, r.Credentials[i].Content)
		r.Credentials[i].Content = nil
	}
	r.Sizes = sizes(contents)
	return r, contents
}

func (r *reply) attach(content []byte) error {
	var into []*[]byte
	for i := range r.Files {
		into = append(into, &r.Files[i].Data)
	}
	for i := range r.Credentials {
		into = append(into, &r.Credentials[i].Content)
	}
	return attach(into, r.Sizes, content)
}

func sizes(contents [][]byte) (n []int) {
	for _, c := range contents {
		n = append(n, len(c))
	}
	return n
}

// attach cuts content into pieces of the given sizes, nil where a size is 0. All must fit exactly.
func attach(into []*[]byte, sizes []int, content []byte) error {
	if len(into) != len(sizes) {
		return fmt.Errorf("%d sizes for %d contents", len(sizes), len(into))
	}
	for i, n := range sizes {
		if n < 0 || n > len(content) || *into[i] != nil {
			return errors.New("contents do not fit their sizes")
		}
		if n > 0 {
			*into[i], content = content[:n:n], content[n:]
		}
	}
	if len(content) > 0 {
		return fmt.Errorf("%d bytes that belong to nothing", len(content))
	}
	return nil
}

// errFrame is what is wrong with a frame itself: after it the stream has no meaning.
var errFrame = errors.New("not a frame of this protocol")

// errCut is a frame that began and did not end.
var errCut = errors.New("a frame was cut short")

// readFrame returns the JSON and the contents of the next frame. It waits for its first byte as long
// as it takes, and for the others no longer than limit (0: as the caller has set). Errors are
// errFrame, errCut, and those of the connection; io.EOF is an end between frames.
func readFrame(conn net.Conn, r *bufio.Reader, limit time.Duration) (text, content []byte, err error) {
	if _, err := r.Peek(1); err != nil {
		return nil, nil, err
	}
	if limit > 0 {
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	}
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, nil, errCut
	}
	if head[0] != version {
		return nil, nil, fmt.Errorf("%w: version %d, want %d", errFrame, head[0], version)
	}
	n, m := binary.BigEndian.Uint32(head[1:]), binary.BigEndian.Uint32(head[5:])
	if uint64(n)+uint64(m) > maxFrame {
		return nil, nil, fmt.Errorf("%w: %d bytes, more than %d", errFrame, uint64(n)+uint64(m), maxFrame)
	}
	// Memory follows what has arrived, not what was announced.
	var body bytes.Buffer
	body.Grow(min(int(n+m), 1<<20) + bytes.MinRead)
	if _, err := io.CopyN(&body, r, int64(n+m)); err != nil {
		return nil, nil, errCut
	}
	return body.Bytes()[:n], body.Bytes()[n:], nil
}

// writeFrame sends v and what belongs to it. What is too large is errFrame, and nothing was sent.
func writeFrame(w io.Writer, v any, contents [][]byte) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	m := 0
	for _, c := range contents {
		m += len(c)
	}
	if len(text)+m > maxFrame {
		return fmt.Errorf("%w: %d bytes, more than %d", errFrame, len(text)+m, maxFrame)
	}
	frame := make([]byte, 0, headSize+len(text))
	frame = append(frame, version)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(text)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(m))
	frame = append(frame, text...)
	buffers := append(net.Buffers{frame}, contents...)
	_, err = buffers.WriteTo(w)
	return err
}

// decode reads exactly one JSON value without unknown fields.
func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}
