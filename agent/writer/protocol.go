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
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

const (
	version  = 1
	maxFrame = 16 << 20
	// enough content for one reply: with one more file of disk.MaxSize, and all of it in base64, it
	// still fits a frame.
	enough = 8 << 20
	// overhead of one answer beside its content, generously.
	overhead = 1 << 10
	// patience with a peer that began a frame, and with one that does not read its reply.
	patience = 10 * time.Second
)

// request holds exactly one of its fields.
type request struct {
	Observe []plan.Query `json:"observe,omitempty"`
	Commit  *plan.Commit `json:"commit,omitempty"`
	Sweep   bool         `json:"sweep,omitempty"`
}

type reply struct {
	Files   []plan.File `json:"files,omitempty"`
	Removed []string    `json:"removed,omitempty"`
	Error   *Error      `json:"error,omitempty"`
}

// errFrame is what is wrong with a frame itself: after it the stream has no meaning.
var errFrame = errors.New("not a frame of this protocol")

// errCut is a frame that began and did not end.
var errCut = errors.New("a frame was cut short")

// readFrame returns the JSON of the next frame. It waits for its first byte as long as it takes, and
// for the others no longer than limit (0: as the caller has set). Errors are errFrame, errCut, and
// those of the connection; io.EOF is an end between frames.
func readFrame(conn net.Conn, r *bufio.Reader, limit time.Duration) ([]byte, error) {
	if _, err := r.Peek(1); err != nil {
		return nil, err
	}
	if limit > 0 {
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	}
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, errCut
	}
	size := binary.BigEndian.Uint32(head[:4])
	if size < 2 || size > maxFrame {
		return nil, fmt.Errorf("%w: %d bytes, want 2 to %d", errFrame, size, maxFrame)
	}
	if head[4] != version {
		return nil, fmt.Errorf("%w: version %d, want %d", errFrame, head[4], version)
	}
	// Memory follows what has arrived, not what was announced.
	var body bytes.Buffer
	body.Grow(min(int(size), 64<<10) + bytes.MinRead)
	if _, err := io.CopyN(&body, r, int64(size-1)); err != nil {
		return nil, errCut
	}
	return body.Bytes(), nil
}

// writeFrame sends v. What is too large is errFrame, and nothing was sent.
func writeFrame(w io.Writer, v any) (int, error) {
	b := bytes.NewBuffer(make([]byte, 5, 512))
	if err := json.NewEncoder(b).Encode(v); err != nil {
		return 0, fmt.Errorf("encode: %w", err)
	}
	if b.Len()-4 > maxFrame {
		return 0, fmt.Errorf("%w: %d bytes, more than %d", errFrame, b.Len()-4, maxFrame)
	}
	frame := b.Bytes()
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	frame[4] = version
	return w.Write(frame)
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
