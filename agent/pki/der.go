// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"encoding/asn1"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// Tags of the elements of a certificate, with class and form. Source: X.690, RFC 5280 4.1.
const (
	tagBoolean     = asn1.TagBoolean
	tagInteger     = asn1.TagInteger
	tagBitString   = asn1.TagBitString
	tagOctetString = asn1.TagOctetString
	tagOID         = asn1.TagOID
	tagSequence    = asn1.TagSequence | constructed
	tagSet         = asn1.TagSet | constructed
	constructed    = 0x20
	context        = 0x80
)

var errShape = errors.New("is not encoded as DER wants a certificate to be")

// exactDER refuses a certificate in which something is left over, or stands in another place or form
// than RFC 5280 says. crypto/x509 passes over much of that; OpenSSL and libtasn1, with which p11-kit
// reads, do not, and one such certificate keeps OpenSSL from loading the file at all.
func exactDER(der []byte) error {
	var bad bool
	all := reader{rest: der, bad: &bad}
	cert := all.enter(tagSequence)
	cert.tbs()
	cert.algorithm()
	cert.bits(tagBitString)
	cert.close()
	all.close()
	if bad {
		return errShape
	}
	return nil
}

// reader walks over the elements at one level. What it stumbles over is noted for all levels, and
// nothing is left to read.
type reader struct {
	rest []byte
	bad  *bool
}

func (r *reader) fail() { *r.bad, r.rest = true, nil }

// next is the tag of the next element, or 0.
func (r *reader) next() byte {
	if len(r.rest) == 0 {
		return 0
	}
	return r.rest[0]
}

// take reads one element with this tag and gives its content.
func (r *reader) take(tag byte) []byte {
	if len(r.rest) < 2 || r.rest[0] != tag {
		r.fail()
		return nil
	}
	n, head := int(r.rest[1]), 2
	if n >= 0x80 {
		octets := n - 0x80
		if octets < 1 || octets > 3 || len(r.rest) < 2+octets {
			r.fail()
			return nil
		}
		n, head = 0, 2+octets
		for _, b := range r.rest[2:head] {
			n = n<<8 | int(b)
		}
		if n < 0x80 || r.rest[2] == 0 {
			r.fail()
			return nil
		}
	}
	if len(r.rest)-head < n {
		r.fail()
		return nil
	}
	content := r.rest[head : head+n]
	r.rest = r.rest[head+n:]
	return content
}

// enter reads one element with this tag and gives a reader of what is in it.
func (r *reader) enter(tag byte) reader { return reader{rest: r.take(tag), bad: r.bad} }

// close fails if something is left over.
func (r *reader) close() {
	if len(r.rest) > 0 {
		r.fail()
	}
}

func (r *reader) tbs() {
	t := r.enter(tagSequence)
	if t.next() == context|constructed {
		version := t.enter(context | constructed)
		version.integer()
		version.close()
	}
	t.integer()
	t.algorithm()
	t.name()
	validity := t.enter(tagSequence)
	validity.time()
	validity.time()
	validity.close()
	t.name()
	key := t.enter(tagSequence)
	key.algorithm()
	key.bits(tagBitString)
	key.close()
	for tag := byte(context | 1); tag <= context|2; tag++ { // the unique identifiers of issuer and subject
		if t.next() == tag {
			t.bits(tag)
		}
	}
	if t.next() == context|constructed|3 {
		t.extensions()
	}
	t.close()
}

func (r *reader) extensions() {
	outer := r.enter(context | constructed | 3)
	list := outer.enter(tagSequence)
	outer.close()
	for len(list.rest) > 0 {
		e := list.enter(tagSequence)
		id := e.oid()
		if e.next() == tagBoolean {
			e.boolean()
		}
		value := e.enter(tagOctetString)
		e.close()
		value.extension(string(id))
	}
}

// extension is the content of those that p11-kit reads when it loads a certificate; to it the others are
// bytes, as to OpenSSL.
func (r *reader) extension(id string) {
	switch id {
	case "\x55\x1d\x0e":
		r.keyID()
	case "\x55\x1d\x0f": // keyUsage
		r.bits(tagBitString)
	case "\x55\x1d\x13":
		r.basicConstraints()
	case "\x55\x1d\x25": // extendedKeyUsage
		r.usages()
	default:
		return
	}
	r.close()
}

func (r *reader) keyID() {
	if len(r.take(tagOctetString)) == 0 {
		r.fail()
	}
}

func (r *reader) basicConstraints() {
	c := r.enter(tagSequence)
	if c.next() == tagBoolean {
		c.boolean()
	}
	if c.next() == tagInteger {
		c.integer()
	}
	c.close()
}

func (r *reader) usages() {
	list := r.enter(tagSequence)
	for len(list.rest) > 0 {
		list.oid()
	}
}

func (r *reader) boolean() {
	if len(r.take(tagBoolean)) != 1 {
		r.fail()
	}
}

func (r *reader) algorithm() {
	a := r.enter(tagSequence)
	a.oid()
	if len(a.rest) > 0 {
		a.take(a.next())
	}
	a.close()
}

func (r *reader) name() {
	name := r.enter(tagSequence)
	for len(name.rest) > 0 {
		set := name.enter(tagSet)
		if len(set.rest) == 0 {
			set.fail()
		}
		for len(set.rest) > 0 {
			attribute := set.enter(tagSequence)
			attribute.oid()
			attribute.text()
			attribute.close()
		}
	}
}

// text is the value of a name's attribute. Each string has to be fit to be compared as UTF-8, which
// OpenSSL does while it reads.
func (r *reader) text() {
	tag := r.next()
	content := r.take(tag)
	ok := true
	switch tag {
	case asn1.TagUTF8String:
		ok = utf8.Valid(content)
	case asn1.TagBMPString:
		ok = len(content)%2 == 0
		for i := 0; ok && i < len(content); i += 2 {
			ok = !utf16.IsSurrogate(rune(content[i])<<8 | rune(content[i+1]))
		}
	case asn1.TagPrintableString, asn1.TagIA5String, asn1.TagNumericString, asn1.TagT61String:
	default:
		ok = false
	}
	if !ok {
		r.fail()
	}
}

func (r *reader) time() {
	if tag := r.next(); tag == asn1.TagUTCTime || tag == asn1.TagGeneralizedTime {
		r.take(tag)
		return
	}
	r.fail()
}

func (r *reader) integer() {
	c := r.take(tagInteger)
	if len(c) == 0 || len(c) > 1 && (c[0] == 0 && c[1] < 0x80 || c[0] == 0xff && c[1] >= 0x80) {
		r.fail()
	}
}

func (r *reader) bits(tag byte) {
	if c := r.take(tag); len(c) == 0 || c[0] > 7 || len(c) == 1 && c[0] > 0 {
		r.fail()
	}
}

// oid wants each number of an object identifier in its shortest form.
func (r *reader) oid() []byte {
	c := r.take(tagOID)
	if len(c) == 0 || c[len(c)-1] >= 0x80 {
		r.fail()
		return nil
	}
	for i := range c {
		if c[i] == 0x80 && (i == 0 || c[i-1] < 0x80) {
			r.fail()
			return nil
		}
	}
	return c
}
