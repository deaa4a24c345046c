// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxLine is the longest line of a block, without its end, that base64(1) makes and that OpenSSL reads in
// every version. 1.1.1 cuts a line of more than 254 bytes into pieces, and takes a piece of white space for
// the end of the headers (crypto/pem/pem_lib.c, get_header_and_data).
const maxLine = 76

var (
	beginLine = []byte("-----BEGIN CERTIFICATE-----")
	endLine   = []byte("-----END CERTIFICATE-----")
	beginMark = []byte("-----BEGIN")
	endMark   = []byte("-----END")
	keyMark   = []byte("PRIVATE KEY-----")
	// p11Mark makes p11-kit take the whole file for its own format, wherever it stands (trust/persist.c,
	// p11_persist_magic; trust/parser.c asks for it first).
	p11Mark = []byte("[p11-kit-object-v1]")
)

// scanner finds the blocks of a bundle line by line. encoding/pem, OpenSSL and p11-kit each skip or
// join something else where a file is not plain, so that it takes plain files only.
type scanner struct {
	rest []byte
	// exact refuses what only some versions of a program read.
	exact bool
	warn  func(string)
	// blocks is how many began.
	blocks int
	// text and der are the last one's.
	text, der []byte
}

// next gives the next block's content, or nil at the end of the text. It is good until the next call.
func (s *scanner) next() (der []byte, err error) {
	for len(s.rest) > 0 {
		line, blank := s.line()
		switch {
		case bytes.Equal(line, beginLine):
			s.blocks++
			return s.block(len(line) + blank)
		case label(line) != "":
			return nil, fmt.Errorf("block %d is a %.40q, not a CERTIFICATE", s.blocks+1, label(line))
		case bytes.Contains(line, beginMark) || bytes.Contains(line, endMark):
			return nil, s.undecodable(s.blocks + 1)
		case len(line) > 0:
			s.warn("text outside blocks")
		}
	}
	return nil, nil
}

// block reads up to the end of a block whose first line has begin bytes.
func (s *scanner) block(begin int) ([]byte, error) {
	longest := begin
	s.text = s.text[:0]
	for len(s.rest) > 0 {
		line, blank := s.line()
		longest = max(longest, len(line)+blank)
		if blank > 0 {
			s.warn("white space at line ends")
		}
		switch {
		case bytes.Equal(line, endLine):
			if longest > maxLine && s.exact {
				return nil, fmt.Errorf("block %d has a line of %d bytes, more than %d", s.blocks, longest, maxLine)
			}
			return s.decode()
		case len(line) == 0:
			return nil, fmt.Errorf("block %d has a blank line, which ends its headers for some programs", s.blocks)
		case bytes.IndexByte(line, ':') >= 0:
			return nil, fmt.Errorf("block %d has PEM headers, with which some programs skip it", s.blocks)
		}
		s.text = append(s.text, line...)
	}
	return nil, s.undecodable(s.blocks)
}

// decode is strict about the bits that padding leaves over: p11-kit is, encoding/pem is not.
func (s *scanner) decode() (der []byte, err error) {
	s.der, err = base64.StdEncoding.Strict().AppendDecode(s.der[:0], s.text)
	if err != nil || len(s.der) == 0 {
		return nil, s.undecodable(s.blocks)
	}
	return s.der, nil
}

func (s *scanner) undecodable(n int) error {
	return fmt.Errorf("block %d does not decode or is cut off", n)
}

// line takes the next line and gives it without its end, and how many blanks stood there.
func (s *scanner) line() (line []byte, blank int) {
	line, s.rest, _ = bytes.Cut(s.rest, []byte("\n"))
	if cut, ok := bytes.CutSuffix(line, []byte("\r")); ok {
		line = cut
		s.warn("CRLF line ends")
	}
	trimmed := bytes.TrimRight(line, " \t")
	return trimmed, len(line) - len(trimmed)
}

// label is what a line that begins another kind of block says of it, or nothing. A line that goes on
// after the label may hold anything.
func label(line []byte) string {
	text, begins := strings.CutPrefix(string(line), "-----BEGIN ")
	text, ends := strings.CutSuffix(text, "-----")
	if !begins || !ends || strings.Contains(text, "-----") {
		return ""
	}
	return text
}

// plain refuses what no line of a bundle may hold. Programs written in C end a text at a NUL, and each
// takes another set of control characters for white space.
func plain(data []byte) error {
	if !bytes.Contains(data, beginMark) && !bytes.Contains(data, endMark) {
		return errors.New("holds no certificate")
	}
	for i, c := range data {
		if c >= ' ' && c != 0x7f || c == '\t' || c == '\n' || c == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			continue
		}
		return fmt.Errorf("line %d holds the control character %#02x", 1+bytes.Count(data[:i], []byte("\n")), c)
	}
	if bytes.Contains(data, p11Mark) {
		return errors.New("holds the mark of p11-kit's own format")
	}
	return nil
}

// appendPEM adds a certificate in the one form that all programs read alike: RFC 7468, lines of 64.
func appendPEM(b, der []byte) []byte {
	b = append(append(b, beginLine...), '\n')
	for line := range slices.Chunk(der, 48) {
		b = append(base64.StdEncoding.AppendEncode(b, line), '\n')
	}
	return append(append(b, endLine...), '\n')
}
