// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"encoding/base64"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// setAll gives the key of the ConfigMap to every field that takes from it.
func (o *Object) setAll(f Field) {
	if o.Fields == nil {
		o.Fields = make(map[plan.Field]Field)
	}
	for _, id := range plan.Fields() {
		if id.FromConfigMap() {
			o.Fields[id] = f
		}
	}
}

// keys decodes our key of a ConfigMap's data or binaryData. The API server allows a key in one of them
// only.
func (d *decoder) keys(o *Object, binary bool) error {
	return d.members(func(name []byte) (err error) {
		if string(name) != d.key {
			return d.json.SkipValue()
		}
		var f Field
		last := d.last[plan.KubeconfigCAData].Data
		if binary {
			f.Data, f.Reason, err = d.bytes(last)
		} else {
			f.Data, f.Reason, err = d.decodeText(last)
		}
		o.setAll(f)
		return err
	})
}

// decodeText decodes text, which is base64 if it can be: the machine config daemon accepts both, and PEM
// never is. If the result equals last, it is last.
func (d *decoder) decodeText(last []byte) (data []byte, reason string, err error) {
	if kind := d.json.PeekKind(); kind != jsontext.KindString {
		return nil, "is " + kindName(kind) + ", not text", d.json.SkipValue()
	}
	raw, err := d.json.ReadValue()
	if err != nil {
		return nil, "", err
	}
	data = d.content(raw)
	d.large = d.large || len(data) > largeValue
	if n := base64.StdEncoding.DecodedLen(len(data)); cap(d.scratch) < n {
		d.scratch = make([]byte, n)
	}
	if n, err := base64.StdEncoding.Decode(d.scratch[:cap(d.scratch)], bytes.TrimSpace(data)); err == nil {
		data = d.scratch[:n]
	}
	switch {
	case len(data) > pki.MaxBytes:
		return nil, fmt.Sprintf("is larger than %d bytes", pki.MaxBytes), nil
	case len(data) == 0:
		return nil, "", nil
	case bytes.Equal(data, last):
		return last, "", nil
	}
	return bytes.Clone(data), "", nil
}
