// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

var limits = Limits{Text: 64, Content: 16, Values: 8}

// raw is a frame as it goes over the wire, with lengths of its own.
func raw(text, content int, body string) []byte {
	b := []byte{version, byte(text >> 24), byte(text >> 16), byte(text >> 8), byte(text),
		byte(content >> 24), byte(content >> 16), byte(content >> 8), byte(content)}
	return append(b, body...)
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	var wire bytes.Buffer
	if err := write(&wire, map[string]int{"a": 1}, [][]byte{[]byte("one"), nil, []byte("two")}, limits); err != nil {
		t.Fatal(err)
	}
	if want := raw(7, 6, `{"a":1}onetwo`); !bytes.Equal(wire.Bytes(), want) {
		t.Errorf("wrote %q, want %q", wire.Bytes(), want)
	}
	text, content, err := read(bufio.NewReader(&wire), limits)
	if err != nil || string(text) != `{"a":1}` || string(content) != "onetwo" {
		t.Errorf("read %q, %q, %v", text, content, err)
	}
}

func TestFramesBeyondTheLimitsAreNeitherWrittenNorRead(t *testing.T) {
	for sentence, wire := range map[string][]byte{
		"JSON":            raw(65, 0, strings.Repeat(" ", 65)),
		"contents":        raw(2, 17, "{}"+strings.Repeat("x", 17)),
		"all bits":        raw(-1, -1, ""),
		"another version": append([]byte{2}, raw(2, 0, "{}")[1:]...),
	} {
		if _, _, err := read(bufio.NewReader(bytes.NewReader(wire)), limits); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: read with %v, want ErrFrame", sentence, err)
		}
	}
	for sentence, err := range map[string]error{
		"JSON":     write(io.Discard, strings.Repeat("x", 63), nil, limits),
		"contents": write(io.Discard, "", [][]byte{make([]byte, 9), make([]byte, 8)}, limits),
	} {
		if !errors.Is(err, ErrFrame) {
			t.Errorf("%s: written with %v, want ErrFrame", sentence, err)
		}
	}
}

func TestAFrameThatEndsTooEarlyIsCutAndOneThatNeverBeganIsTheEnd(t *testing.T) {
	whole := raw(2, 2, "{}xx")
	for n := range len(whole) {
		want := errCut
		if n == 0 {
			want = io.EOF
		}
		if _, _, err := read(bufio.NewReader(bytes.NewReader(whole[:n])), limits); !errors.Is(err, want) {
			t.Errorf("of %d bytes: %v, want %v", n, err, want)
		}
	}
}

func TestDecodeTakesOneValueOfKnownFieldsWithinItsLimit(t *testing.T) {
	type request struct{ Names []string }
	for text, want := range map[string]string{
		`{"Names":["a","b"]}`:                         "",
		`{"Names":["a,[{","\"b,,,,,,,,,,,,,,"]}`:      "",
		`{"Names":["1","2","3","4","5","6","7"]}`:     "",
		`{"Names":["1","2","3","4","5","6","7","8"]}`: "9 values, more than 8",
		`[[[[[[[[[`:                   "9 values, more than 8",
		`{"Names":["a"],"Path":"/b"}`: `json: unknown field "Path"`,
		`{"Names":["a"]}{}`:           "more than one JSON value",
		`{"Names":["a"]`:              "unexpected EOF",
		``:                            "EOF",
	} {
		if err := Decode([]byte(text), new(request), limits); fmt.Sprint(err) != fmt.Sprint(want) &&
			(err != nil || want != "") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAttachTakesExactSizesOnly(t *testing.T) {
	for sentence, c := range map[string]struct {
		sizes   []int
		content string
		want    string
	}{
		"all":         {[]int{3, 0, 2}, "onetw", "one||tw"},
		"too little":  {[]int{3, 0, 3}, "onetw", ""},
		"too much":    {[]int{3, 0, 1}, "onetw", ""},
		"negative":    {[]int{3, -1, 3}, "onetw", ""},
		"fewer sizes": {[]int{3, 2}, "onetw", ""},
		"more sizes":  {[]int{3, 2, 0, 0}, "onetw", ""},
	} {
		got := make([][]byte, 3)
		err := Attach([]*[]byte{&got[0], &got[1], &got[2]}, c.sizes, []byte(c.content))
		if text := string(bytes.Join(got, []byte("|"))); (err == nil) != (c.want != "") || err == nil && text != c.want {
			t.Errorf("%s: %q, %v; want %q", sentence, text, err, c.want)
		}
	}
	there := []byte("x")
	if err := Attach([]*[]byte{&there}, []int{1}, []byte("y")); err == nil || string(there) != "x" {
		t.Errorf("what was there became %q, %v", there, err)
	}
	if got := Sizes([][]byte{[]byte("one"), nil}); len(got) != 2 || got[0] != 3 || got[1] != 0 {
		t.Errorf("sizes %v", got)
	}
}
