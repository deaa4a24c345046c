// SPDX-License-Identifier: Apache-2.0

// Package frame carries requests and replies between our processes of one host: the format of a frame,
// a server that answers peers on a unix socket that systemd listens on, and a client of such a server.
// It knows nothing of what is asked; each server brings its own requests, replies and Limits.
//
// # Protocol
//
// A stream of frames, a request and its reply in turn. A frame is one byte with the protocol's version
// (1), the length of its JSON and that of its contents (four bytes each, big-endian), the JSON, and the
// contents of all files, one after another. Contents are not in the JSON, because to decode them from
// base64 takes longer than to bring them to the disk. Unknown fields are errors.
//
// # What a hostile peer can cost
//
// A server refuses other users before it reads a byte of theirs. A frame that is larger than its Limits
// is refused by its head. Memory of more than 512 KiB is given to one frame at a time, whatever the
// number of peers, and the JSON is counted before it is decoded, because a short text can ask for many
// values. A peer that stops in the middle is hung up on after ten seconds. What is not promised: a peer
// that may speak can take up all connections, and so keep others out.
//
// Sources: unix(7) for SO_PEERCRED, sd_listen_fds(3), sd-daemon(3) for the priority prefixes.
package frame

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

const (
	version  = 1
	headSize = 1 + 4 + 4
)

// Limits bound one frame. What exceeds them is ErrFrame on either side.
type Limits struct {
	// Text is the largest JSON, in bytes.
	Text int
	// Content is the largest sum of the contents, in bytes.
	Content int
	// Values bounds the values that the JSON may decode to, counted as its commas and opening
	// brackets outside of strings.
	Values int
}

// ErrFrame is what is wrong with a frame itself: after it the stream has no meaning.
var ErrFrame = errors.New("not a frame of this protocol")

// errCut is a frame that began and did not end.
var errCut = errors.New("a frame was cut short")

// head is the announcement of a frame: the lengths of its JSON and of its contents, in bytes.
type head struct{ text, content int }

func (h head) size() int { return h.text + h.content }

// readHead waits for a frame and returns its head. Errors are ErrFrame, errCut, and those of the
// connection; io.EOF is an end between frames.
func readHead(r io.Reader, l Limits) (h head, err error) {
	var b [headSize]byte
	switch n, err := io.ReadFull(r, b[:]); {
	case n == 0 && err != nil:
		return h, err
	case err != nil:
		return h, errCut
	}
	if b[0] != version {
		return h, fmt.Errorf("%w: version %d, want %d", ErrFrame, b[0], version)
	}
	n, m := uint64(binary.BigEndian.Uint32(b[1:])), uint64(binary.BigEndian.Uint32(b[5:]))
	if n > uint64(l.Text) {
		return h, fmt.Errorf("%w: JSON of %d bytes, more than %d", ErrFrame, n, l.Text)
	}
	if m > uint64(l.Content) {
		return h, fmt.Errorf("%w: contents of %d bytes, more than %d", ErrFrame, m, l.Content)
	}
	return head{int(n), int(m)}, nil
}

// readBody returns the JSON and the contents of the frame that h announced.
func readBody(r io.Reader, h head) (text, content []byte, err error) {
	body := make([]byte, h.size())
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, nil, errCut
	}
	return body[:h.text:h.text], body[h.text:], nil
}

// read is readHead and readBody.
func read(r *bufio.Reader, l Limits) (text, content []byte, err error) {
	h, err := readHead(r, l)
	if err != nil {
		return nil, nil, err
	}
	return readBody(r, h)
}

// write sends v and what belongs to it. What is too large is ErrFrame, and nothing was sent.
func write(w io.Writer, v any, contents [][]byte, l Limits) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	m := 0
	for _, c := range contents {
		m += len(c)
	}
	if len(text) > l.Text || m > l.Content {
		return fmt.Errorf("%w: JSON of %d bytes and contents of %d, more than %d and %d", ErrFrame,
			len(text), m, l.Text, l.Content)
	}
	b := make([]byte, 0, headSize+len(text))
	b = append(b, version)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	b = binary.BigEndian.AppendUint32(b, uint32(m))
	b = append(b, text...)
	buffers := append(net.Buffers{b}, contents...)
	_, err = buffers.WriteTo(w)
	return err
}

// Decode reads exactly one JSON value without unknown fields into v, if it is within the limits.
// Its errors are one line; they may quote names that the peer chose.
func Decode(text []byte, v any, l Limits) error {
	if n := values(text); n > l.Values {
		return fmt.Errorf("%d values, more than %d", n, l.Values)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

// values counts commas and opening brackets outside of strings. Every element of a list and every
// field of an object has one of these before it.
func values(text []byte) (n int) {
	quoted, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}

// Sizes are the lengths of the contents, in bytes: what Attach needs on the other side.
func Sizes(contents [][]byte) (n []int) {
	for _, c := range contents {
		n = append(n, len(c))
	}
	return n
}

// Attach cuts content into pieces of the given sizes, nil where a size is 0. All must fit exactly,
// and nothing may be there yet.
func Attach(into []*[]byte, sizes []int, content []byte) error {
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
