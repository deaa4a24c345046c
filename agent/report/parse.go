// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf16"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Parse reads the content of StatusFile, which the agent's user wrote, and root prints: every text in it is made fit
// for a terminal, whatever the agent did about that. The error is too.
func Parse(data []byte) (s Status, err error) {
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("the status is not what an agent of this version writes: %s", printable.Text(err.Error()))
	}
	makePlain(reflect.ValueOf(&s).Elem())
	return s, nil
}

// maxText, in bytes, is more than the longest path of a managed file.
const maxText = 512

// plainText leaves alone what the agent made printable: it would be escaped twice.
func plainText(s string) string {
	if len(s) <= maxText && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	return printable.Text(s)
}

// makePlain does it to every string in v.
func makePlain(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(plainText(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			makePlain(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			makePlain(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				makePlain(v.Field(i))
			}
		}
	}
}

// PlainJSON is the content of StatusFile as the same JSON, fields of other versions included, with every character
// escaped that is not ASCII; nil if it is not JSON. Outside strings JSON has none but line ends and tabs, which Indent
// replaces.
func PlainJSON(data []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, bytes.TrimSpace(data), "", "  ") != nil {
		return nil
	}
	out := make([]byte, 0, b.Len()+1)
	for _, r := range b.String() {
		switch {
		case r == '\n' || r >= ' ' && r <= '~':
			out = append(out, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return append(out, '\n')
}
