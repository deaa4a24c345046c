// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
)

const mebi = 1 << 20

// frameHead is the head of a frame.
func frameHead(text, content int) []byte {
	b := binary.BigEndian.AppendUint32([]byte{1}, uint32(text))
	return binary.BigEndian.AppendUint32(b, uint32(content))
}

// allocated is how many bytes were allocated in this process so far, freed ones included: an upper
// bound of what is held at any moment since an earlier call.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestNoHostileFrameCostsMuchMemory(t *testing.T) {
	// Four connections of these and one large frame stay below 32 MiB. Go 1.27 needs 4.8 for a long unknown field.
	const bound = 5 * mebi
	local, _ := newLocal(t)
	s := serve(t, local)
	fill := func(before, each, after string, size int) []byte {
		n := max(0, size-len(before)-len(after)) / len(each)
		text := before + strings.TrimSuffix(strings.Repeat(each, n), ",") + after
		return append(frameHead(len(text), 0), text...)
	}
	for sentence, make := range map[string]func(size int) []byte{
		"empty queries":    func(n int) []byte { return fill(`{"observe":[`, `{},`, `]}`, n) },
		"numbers":          func(n int) []byte { return fill(`{"observe":[`, `1,`, `]}`, n) },
		"empty writes":     func(n int) []byte { return fill(`{"commit":{"writes":[`, `{},`, `]}}`, n) },
		"empty removals":   func(n int) []byte { return fill(`{"commit":{"removals":[`, `{},`, `]}}`, n) },
		"data in the JSON": func(n int) []byte { return fill(`{"commit":{"writes":[`, `{"data":"AAAA"},`, `]}}`, n) },
		"sizes":            func(n int) []byte { return fill(`{"sweep":true,"sizes":[`, `0,`, `]}`, n) },
		"the same twice":   func(n int) []byte { return fill(`{`, `"observe":[{},{}],`, `}`, n) },
		"nesting":          func(n int) []byte { return fill(``, `[`, ``, n) },
		"objects":          func(n int) []byte { return fill(``, `{"a":`, ``, n) },
		"one long name":    func(n int) []byte { return fill(`{"observe":[{"name":"`, `a`, `"}]}`, n) },
		"escapes":          func(n int) []byte { return fill(`{"observe":[{"name":"`, `\u00e4`, `"}]}`, n) },
		"unknown field":    func(n int) []byte { return fill(`{"`, `a`, `":1}`, n) },
		"quotes":           func(n int) []byte { return fill(``, `"\"",`, ``, n) },
		"blanks":           func(n int) []byte { return fill(`{"sweep":true}`, ` `, ``, n) },
	} {
		t.Run(sentence, func(t *testing.T) {
			// The largest frame that is read, and one that should not be.
			for _, size := range []int{256 << 10, 15 * mebi} {
				b := make(size)
				before := allocated()
				sendRaw(t, s.socket, b)
				if used := allocated() - before; used > bound {
					t.Errorf("a frame of %d bytes allocated %d KiB, more than %d KiB", size, used>>10, bound>>10)
				}
			}
		})
	}
}

func TestOneLargeFrameIsHeldAtATime(t *testing.T) {
	local, _ := newLocal(t)
	s := serve(t, local)
	const size = 8 * mebi
	content := make([]byte, size)
	text := `{"sweep":true}`
	request := append(append(frameHead(len(text), size), text...), content...)
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	arrived, answered := make(chan net.Conn), make(chan string)
	for range 4 {
		go func() {
			conn, err := net.Dial("unix", s.socket)
			if err != nil {
				t.Error(err)
				return
			}
			// All but the last byte: the server has read what could be written, less a socket's buffer.
			_, _ = conn.Write(request[:len(request)-1])
			arrived <- conn
		}()
	}
	for i := range 4 {
		conn := <-arrived
		if i == 0 {
			runtime.GC()
			runtime.ReadMemStats(&during)
		}
		go func() {
			_, _ = conn.Write(request[len(request)-1:])
			answer, _ := io.ReadAll(io.LimitReader(conn, 64))
			_ = conn.Close()
			answered <- string(answer)
		}()
	}
	if held := int64(during.HeapAlloc) - int64(before.HeapAlloc); held > size+2*mebi {
		t.Errorf("%d KiB are held for four frames of %d KiB", held>>10, size>>10)
	}
	for range 4 {
		if a := <-answered; !strings.Contains(a, "refused") {
			t.Errorf("answered %q", a)
		}
	}
}
