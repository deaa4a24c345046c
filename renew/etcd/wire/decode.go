// SPDX-License-Identifier: Apache-2.0

// Package wire reads and writes the protocol buffers of etcd's messages, each of them a table of fields.
//
// It does what a dozen messages with scalars, strings and messages in them need, and no more: no reflection, no
// generated code, no registry. It is stricter than the format asks for. A known field of another type is an error, not
// an unknown field, and text has to be UTF-8. Unknown fields are passed over, so that a newer etcd is understood.
//
// Sources: protobuf.dev/programming-guides/encoding; google.golang.org/protobuf/encoding/protowire.
package wire

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed says that bytes are no message of the kind that was expected.
var ErrMalformed = errors.New("malformed message")

// maxRepeated is how often one field may occur: an empty one takes two bytes to send, and far more to keep.
const maxRepeated = 1000

// Field takes the value of one field of a message.
type Field struct {
	kind protowire.Type
	set  func(number uint64, bytes []byte) error
}

// Fields says for the numbers of a message's fields where their values go.
type Fields map[protowire.Number]Field

// Decode reads a message. Every error is ErrMalformed; what was set before stays set.
func Decode(message []byte, fields Fields) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return ErrMalformed
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return ErrMalformed
		}
		if field, known := fields[number]; known {
			if err := field.take(kind, message[:n]); err != nil {
				return err
			}
		}
		message = message[n:]
	}
	return nil
}

func (f Field) take(kind protowire.Type, value []byte) error {
	if kind != f.kind {
		return ErrMalformed
	}
	if kind == protowire.VarintType {
		number, _ := protowire.ConsumeVarint(value)
		return f.set(number, nil)
	}
	bytes, _ := protowire.ConsumeBytes(value)
	return f.set(0, bytes)
}

// Number is a field of type int64, uint64 or an enum. Of several values the last one counts, as the format has it.
func Number[T ~int32 | ~int64 | ~uint64](to *T) Field {
	return Field{protowire.VarintType, func(v uint64, _ []byte) error { *to = T(v); return nil }}
}

// Bool is a field of type bool.
func Bool(to *bool) Field {
	return Field{protowire.VarintType, func(v uint64, _ []byte) error { *to = v != 0; return nil }}
}

// Bytes is a field of type bytes. What it sets is part of the message.
func Bytes(to *[]byte) Field {
	return Field{protowire.BytesType, func(_ uint64, b []byte) error { *to = b; return nil }}
}

// Text is a field of type string.
func Text(to *string) Field {
	return Message(func(b []byte) error {
		if !utf8.Valid(b) {
			return ErrMalformed
		}
		*to = string(b)
		return nil
	})
}

// Texts is a repeated field of type string.
func Texts(to *[]string) Field {
	return Repeated(to, func(b []byte) (string, error) {
		if !utf8.Valid(b) {
			return "", ErrMalformed
		}
		return string(b), nil
	})
}

// Repeated is a repeated field of messages, each read by decode. More than a thousand are malformed.
func Repeated[T any](to *[]T, decode func([]byte) (T, error)) Field {
	return Message(func(b []byte) error {
		v, err := decode(b)
		if err != nil || len(*to) == maxRepeated {
			return ErrMalformed
		}
		*to = append(*to, v)
		return nil
	})
}

// Message is a field that is a message itself, read by decode.
func Message(decode func([]byte) error) Field {
	return Field{protowire.BytesType, func(_ uint64, b []byte) error { return decode(b) }}
}
