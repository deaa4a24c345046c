// SPDX-License-Identifier: Apache-2.0

package readers

import (
	"encoding/asn1"
	"math/rand/v2"
	"slices"
)

// element is a DER element, taken apart as far as it goes.
type element struct {
	tag      byte
	content  []byte
	children []*element
}

// takeApart reads elements as long as there are any. What is in an OCTET STRING or BIT STRING is taken
// apart too if it can be, since extensions and keys lie there.
func takeApart(der []byte) ([]*element, bool) {
	var all []*element
	for len(der) > 0 {
		var v asn1.RawValue
		rest, err := asn1.Unmarshal(der, &v)
		if err != nil || len(v.FullBytes) == 0 || der[0]&0x1f == 0x1f {
			return nil, false
		}
		e := &element{tag: der[0], content: v.Bytes}
		if e.tag&0x20 != 0 || e.tag == asn1.TagOctetString {
			if children, ok := takeApart(v.Bytes); ok && len(children) > 0 {
				e.children = children
			}
		}
		all, der = append(all, e), rest
	}
	return all, true
}

func (e *element) bytes() []byte {
	content := e.content
	if e.children != nil {
		content = nil
		for _, c := range e.children {
			content = append(content, c.bytes()...)
		}
	}
	head := []byte{e.tag}
	switch n := len(content); {
	case n < 0x80:
		head = append(head, byte(n))
	case n < 0x100:
		head = append(head, 0x81, byte(n))
	default:
		head = append(head, 0x82, byte(n>>8), byte(n))
	}
	return append(head, content...)
}

func (e *element) all() []*element {
	out := []*element{e}
	for _, c := range e.children {
		out = append(out, c.all()...)
	}
	return out
}

// tags are worth trying in the place of others.
var tags = []byte{0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0a, 0x0c, 0x12, 0x13, 0x14, 0x16, 0x17, 0x18, 0x1a, 0x1c,
	0x1e,
	0x24, 0x30, 0x31, 0x80, 0x81, 0x82, 0x83, 0xa0, 0xa1, 0xa2, 0xa3}

// contents are worth trying, too.
var contents = []string{"", "\x00", "\x01", "\xff", "\x80", "\x00\x01", "\x00\x80", "\xff\x80", "\x2a\x03", "\x80\x01",
	"\xc3\xa4", "\xe4",
	"\xd8\x00", "\xd8\x00\xdc\x00", "\x00a", "a\x00b", "\x05\xa0", "\x08\xa0", "\x07\x00", "260101000000Z",
	"20260101000000Z", "20500101000000Z"}

// Mutate changes a certificate in one to three places of its structure, with the lengths around them, or
// some of its bytes. What comes out need not be a certificate.
func Mutate(r *rand.Rand, der []byte) []byte {
	roots, ok := takeApart(der)
	if !ok || len(roots) != 1 || r.IntN(4) == 0 {
		der = slices.Clone(der)
		for range 1 + r.IntN(3) {
			der[r.IntN(len(der))] ^= 1 << r.IntN(8)
		}
		return der
	}
	for range 1 + r.IntN(3) {
		all := roots[0].all()
		e := all[r.IntN(len(all))]
		switch other := all[r.IntN(len(all))]; r.IntN(6) {
		case 0:
			e.tag = tags[r.IntN(len(tags))]
		case 1:
			e.children, e.content = nil, []byte(contents[r.IntN(len(contents))])
		case 2:
			if n := len(e.children); n > 0 {
				i := r.IntN(n)
				e.children = slices.Delete(slices.Clone(e.children), i, i+1)
			}
		case 3:
			if n := len(e.children); n > 0 && len(all) < 1000 {
				copied := *other
				if parts, ok := takeApart(other.bytes()); ok && len(parts) == 1 {
					copied = *parts[0]
				}
				e.children = slices.Insert(slices.Clone(e.children), r.IntN(n+1), &copied)
			}
		case 4:
			if n := len(e.children); n > 1 {
				i, j := r.IntN(n), r.IntN(n)
				e.children = slices.Clone(e.children)
				e.children[i], e.children[j] = e.children[j], e.children[i]
			}
		case 5:
			if e.children == nil && len(e.content) > 0 {
				e.content = slices.Clone(e.content)
				e.content[r.IntN(len(e.content))] = byte(r.IntN(256))
			}
		}
	}
	return roots[0].bytes()
}
