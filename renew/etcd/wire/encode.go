// SPDX-License-Identifier: Apache-2.0

package wire

import "google.golang.org/protobuf/encoding/protowire"

// AppendNumber appends a field of type int64, uint64, bool or an enum. A zero is sent as well, since of a oneof it
// says which one.
func AppendNumber[T ~int32 | ~int64 | ~uint64](b []byte, number protowire.Number, v T) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(v))
}

// AppendBytes appends a field of type bytes or string, or one that is a message.
func AppendBytes[T ~string | ~[]byte](b []byte, number protowire.Number, v T) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return append(protowire.AppendVarint(b, uint64(len(v))), v...)
}
