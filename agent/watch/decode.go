// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// annotationPrefix begins the annotations of the object that are ours; all others are dropped.
const annotationPrefix = "node-cert-agent.io/"

// Limits of what is decoded. A Kubernetes API server does not store objects over 1.5 MiB (etcd's
// default), so that reaching one of them means that something else is answering.
const (
	maxEvent       = 32 << 20 // bytes of one event
	maxValue       = 4 << 20  // bytes of one JSON string: the most the stream buffers
	maxAnnotations = 16
	maxText        = 256 // bytes of an untrusted string that is shown
)

// MaxEntries is how many entries a list may have. Of a longer one nothing is taken.
const MaxEntries = 1000

// largeValue is a value, in bytes, for which memory is not kept until the next event.
const largeValue = 256 << 10

// Object is what was decoded of the controllerconfig, or of the ConfigMap. It is immutable: unchanged fields of
// successive objects share memory.
type Object struct {
	Name, UID, ResourceVersion string
	// Annotations holds those that begin with annotationPrefix.
	Annotations map[string]string
	// Fields holds the fields that were present and not null.
	Fields map[plan.Field]Field
}

// Field is one field as published: a bundle, or the entries of a list.
type Field struct {
	Data    []byte
	Entries []ListEntry
	// Reason is set if the value cannot be used, and says why without repeating it.
	Reason string
}

// ListEntry is one {file, data} of a registry list.
type ListEntry struct {
	File string
	Data []byte
	// Reason is set if the entry cannot be used, and says why without repeating it.
	Reason string
}

// DecodeObject reads one object in JSON, as `kubectl get -o json` prints it. It fails if r does not
// hold exactly one ControllerConfig; unusable fields are facts of the object.
func DecodeObject(r io.Reader) (Object, error) {
	d := newDecoder(r, nil, nil)
	d.begin()
	e := event{}
	if err := d.object(&e); err != nil {
		return Object{}, fmt.Errorf("decode object: %w", d.explain(err))
	}
	if e.status.kind != "ControllerConfig" {
		return Object{}, fmt.Errorf("decode object: kind is %q, want ControllerConfig", e.status.kind)
	}
	if _, err := d.json.ReadToken(); !errors.Is(err, io.EOF) {
		return Object{}, errors.New("decode object: more than one value in the input")
	}
	return e.object, nil
}

// event is one line of a watch. For an ERROR, status says which.
type event struct {
	kind   string // ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
	object Object
	status status
}

// status holds the fields of meta/v1 Status, and the kind of whatever object it was.
type status struct {
	kind, reason, message string
	code                  int
}

// decoder reads events from a stream. It remembers the fields it decoded last, so that an unchanged
// field costs no memory and is recognised downstream.
type decoder struct {
	json    *jsontext.Decoder
	reader  limitReader
	fields  map[string]plan.Field // by the name of their field
	key     string                // of a ConfigMap; empty for a controllerconfig
	last    map[plan.Field]Field
	scratch []byte // decoded base64
	unquote []byte // a string with its escapes resolved
	large   bool   // by a large value
}

// newDecoder begins a stream. last is what an earlier stream decoded last, or nil; seen, if not nil,
// is called whenever bytes arrive.
func newDecoder(r io.Reader, last map[plan.Field]Field, seen func()) *decoder {
	d := &decoder{fields: make(map[string]plan.Field), last: last, reader: limitReader{r: r, seen: seen}}
	for _, id := range plan.Fields() {
		if !id.FromConfigMap() {
			d.fields[string(id)] = id
		}
	}
	d.renew()
	return d
}

// renew begins to read where an event ended, without the buffers that it needed: a decoder keeps the
// largest that it ever had, and an object at its limits would cost four megabytes for as long as the
// stream lasts.
func (d *decoder) renew() {
	if d.json != nil {
		unread := bytes.Clone(d.json.UnreadBuffer())
		d.reader.r, d.reader.total = io.MultiReader(bytes.NewReader(unread), d.reader.r), 0
	}
	d.json, d.scratch, d.unquote, d.large = new(jsontext.Decoder), nil, nil, false
	d.reader.dec = d.json
	// The server has checked what it sends; only our fields deserve a check, and get it.
	d.json.Reset(&d.reader, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// begin grants the next value its budget of bytes.
func (d *decoder) begin() { d.reader.left = maxEvent }

// next returns the next event, or io.EOF at the clean end of the stream.
func (d *decoder) next() (event, error) {
	d.begin()
	if d.json.PeekKind() == 0 {
		_, err := d.json.ReadToken()
		return event{}, d.explain(err)
	}
	var e event
	err := d.members(func(name []byte) error {
		switch string(name) {
		case "type":
			return d.text(&e.kind)
		case "object":
			return d.object(&e)
		}
		return d.json.SkipValue()
	})
	if err != nil {
		return event{}, d.explain(err)
	}
	if len(e.object.Fields) > 0 {
		d.last = e.object.Fields
	}
	if d.large {
		d.renew()
	}
	return e, nil
}

// item reads a list and returns its object of that name, or nil.
func (d *decoder) item(name string) (found *Object, err error) {
	d.begin()
	list := false
	err = d.members(func(member []byte) error {
		if string(member) != "items" {
			return d.json.SkipValue()
		}
		list = true
		return d.elements(func() error {
			var e event
			err := d.object(&e)
			if e.object.Name == name {
				found = &e.object
			}
			return err
		})
	})
	if err == nil && !list {
		return nil, errors.New("the answer is not a list")
	}
	return found, d.explain(err)
}

// explain turns errors of jsontext, which quote their input, into ones that do not.
func (d *decoder) explain(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errCutOff
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON at byte %d", syntax.ByteOffset)
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner // jsontext's own wrapper around errors of the reader
	}
	return err
}

var errCutOff = errors.New("the stream was cut off in the middle of an event")

// object decodes a ControllerConfig or ConfigMap, a bookmark's stub or a Status: their members do not
// overlap.
func (d *decoder) object(e *event) error {
	err := d.members(func(name []byte) error {
		switch string(name) {
		case "kind":
			return d.text(&e.status.kind)
		case "metadata":
			return d.metadata(&e.object)
		case "spec":
			if d.key == "" {
				return d.spec(&e.object)
			}
		case "data", "binaryData":
			if d.key != "" {
				return d.keys(&e.object, string(name) == "binaryData")
			}
		case "code":
			return d.number(&e.status.code)
		case "reason":
			return d.text(&e.status.reason)
		case "message":
			return d.text(&e.status.message)
		}
		return d.json.SkipValue()
	})
	if d.key != "" && e.object.Name != "" && e.object.Fields == nil {
		e.object.setAll(Field{Reason: "the ConfigMap has no key " + d.key})
	}
	return err
}

func (d *decoder) metadata(o *Object) error {
	return d.members(func(name []byte) error {
		switch string(name) {
		case "name":
			return d.text(&o.Name)
		case "uid":
			return d.text(&o.UID)
		case "resourceVersion":
			return d.text(&o.ResourceVersion)
		case "annotations":
			return d.annotations(o)
		}
		return d.json.SkipValue()
	})
}

func (d *decoder) annotations(o *Object) error {
	return d.members(func(name []byte) error {
		if !bytes.HasPrefix(name, []byte(annotationPrefix)) || len(o.Annotations) == maxAnnotations {
			return d.json.SkipValue()
		}
		if o.Annotations == nil {
			o.Annotations = make(map[string]string)
		}
		key, value := string(name), ""
		err := d.string(&value)
		o.Annotations[key] = value
		return err
	})
}

func (d *decoder) spec(o *Object) error {
	return d.members(func(name []byte) error {
		id, ours := d.fields[string(name)]
		if !ours {
			return d.json.SkipValue()
		}
		if o.Fields == nil {
			o.Fields = make(map[plan.Field]Field, len(d.fields))
		}
		if d.json.PeekKind() == jsontext.KindNull {
			delete(o.Fields, id)
			return d.json.SkipValue()
		}
		var f Field
		var err error
		if id.List() {
			f, err = d.list(d.last[id])
		} else {
			f.Data, f.Reason, err = d.bytes(d.last[id].Data)
		}
		o.Fields[id] = f
		return err
	})
}

// list decodes the entries of a registry list; last is what the list held before.
func (d *decoder) list(last Field) (f Field, err error) {
	if kind := d.json.PeekKind(); kind != jsontext.KindBeginArray {
		return Field{Reason: "is " + kindName(kind) + ", not a list"}, d.json.SkipValue()
	}
	if n := len(last.Entries); n > 0 {
		f.Entries = make([]ListEntry, 0, n)
	}
	i := -1
	err = d.elements(func() error {
		i++
		if i >= MaxEntries {
			f = Field{Reason: fmt.Sprintf("has more than %d entries", MaxEntries)}
			return d.json.SkipValue()
		}
		var before ListEntry
		if i < len(last.Entries) {
			before = last.Entries[i]
		}
		e, err := d.entry(before, last.Entries)
		f.Entries = append(f.Entries, e)
		return err
	})
	return f, err
}

// entry decodes one {file, data}. before is the entry that stood at this place in the last list, all.
func (d *decoder) entry(before ListEntry, all []ListEntry) (e ListEntry, err error) {
	if kind := d.json.PeekKind(); kind != jsontext.KindBeginObject {
		return ListEntry{Reason: "is " + kindName(kind) + ", not an object"}, d.json.SkipValue()
	}
	e.File = before.File
	named := false
	err = d.members(func(name []byte) (err error) {
		switch string(name) {
		case "file":
			named = d.json.PeekKind() == jsontext.KindString
			return d.string(&e.File)
		case "data":
			e.Data, e.Reason, err = d.bytes(before.Data)
			return err
		}
		return d.json.SkipValue()
	})
	switch {
	case !named || e.File == "":
		e.File, e.Reason = "", "has no file name"
	case e.File != before.File:
		// Entries have moved.
		if moved := find(all, e.File); bytes.Equal(moved.Data, e.Data) {
			e.Data = moved.Data
		}
	}
	return e, err
}

func find(entries []ListEntry, file string) ListEntry {
	for _, e := range entries {
		if e.File == file {
			return e
		}
	}
	return ListEntry{}
}

// members reads an object and calls f with the name of each member; f consumes the value, after
// which name is no longer valid. A value of another type has no members.
func (d *decoder) members(f func(name []byte) error) error {
	if d.json.PeekKind() != jsontext.KindBeginObject {
		return d.json.SkipValue()
	}
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	for d.json.PeekKind() != jsontext.KindEndObject {
		raw, err := d.json.ReadValue()
		if err != nil {
			return err
		}
		if err := f(d.content(raw)); err != nil {
			return err
		}
	}
	_, err := d.json.ReadToken()
	return err
}

// elements reads a list and calls f before each element; f consumes it. A value of another type has
// no elements.
func (d *decoder) elements(f func() error) error {
	if d.json.PeekKind() != jsontext.KindBeginArray {
		return d.json.SkipValue()
	}
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	for d.json.PeekKind() != jsontext.KindEndArray {
		if err := f(); err != nil {
			return err
		}
	}
	_, err := d.json.ReadToken()
	return err
}

// content is the text of a JSON string, valid until the next read.
func (d *decoder) content(raw jsontext.Value) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	// The only error that is possible here is invalid UTF-8, which becomes U+FFFD.
	d.unquote, _ = jsontext.AppendUnquote(d.unquote[:0], raw)
	return d.unquote
}

// string reads a string into s, which keeps its memory if it does not change. Values of another
// type leave s empty.
func (d *decoder) string(s *string) error {
	if d.json.PeekKind() != jsontext.KindString {
		*s = ""
		return d.json.SkipValue()
	}
	raw, err := d.json.ReadValue()
	if err != nil {
		return err
	}
	if b := d.content(raw); string(b) != *s {
		*s = string(b)
	}
	return nil
}

// text reads a string that names something: cut to what may be shown.
func (d *decoder) text(s *string) error {
	err := d.string(s)
	if len(*s) > maxText {
		*s = strings.Clone((*s)[:maxText])
	}
	return err
}

func (d *decoder) number(n *int) error {
	if d.json.PeekKind() != jsontext.KindNumber {
		return d.json.SkipValue()
	}
	t, err := d.json.ReadToken()
	if err != nil {
		return err
	}
	if v, err := t.Int(); err == nil {
		*n = int(v)
	}
	return nil
}

// bytes decodes base64 as encoding/json does for []byte. If the result equals last, it is last.
// Null and the empty string are no data and no fault.
func (d *decoder) bytes(last []byte) (data []byte, reason string, err error) {
	kind := d.json.PeekKind()
	switch kind {
	case jsontext.KindNull:
		return nil, "", d.json.SkipValue()
	case jsontext.KindString:
	default:
		return nil, "is " + kindName(kind) + ", not base64 text", d.json.SkipValue()
	}
	raw, err := d.json.ReadValue()
	if err != nil {
		return nil, "", err
	}
	data, invalid := d.decode(d.content(raw))
	n := len(data)
	switch {
	case invalid != nil:
		return nil, "is not valid base64", nil
	case n > largeValue && n <= pki.MaxBytes && cap(d.scratch) < n+n/8 && !bytes.Equal(data, last):
		d.scratch = nil // given away: a copy would be another megabyte
		return data, "", nil
	}
	data, reason = keep(data, last)
	return data, reason, nil
}

// kindName names a kind of JSON value in a sentence.
func kindName(k jsontext.Kind) string {
	switch k {
	case jsontext.KindNull:
		return "null"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "a boolean"
	case jsontext.KindString:
		return "a string"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindBeginObject:
		return "an object"
	}
	return "a list"
}

// limitReader bounds what one event may cost. jsontext streams everything except the string at hand,
// which it buffers whole.
type limitReader struct {
	r     io.Reader
	seen  func()
	dec   *jsontext.Decoder
	total int64 // bytes delivered
	left  int64 // bytes that the event at hand may still take
}

var (
	errEventSize = fmt.Errorf("an event of more than %d bytes", maxEvent)
	errValueSize = fmt.Errorf("a value of more than %d bytes", maxValue)
)

// Read implements io.Reader.
func (m *limitReader) Read(p []byte) (int, error) {
	switch {
	case m.left <= 0:
		return 0, errEventSize
	case m.total-m.dec.InputOffset() > maxValue:
		return 0, errValueSize
	}
	n, err := m.r.Read(p)
	m.total += int64(n)
	m.left -= int64(n)
	if n > 0 && m.seen != nil {
		m.seen()
	}
	return n, err
}

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
	if decoded, err := d.decode(bytes.TrimSpace(data)); err == nil {
		data = decoded
	}
	data, reason = keep(data, last)
	return data, reason, nil
}

// decode gives what base64 stands for. It is good until the next call.
func (d *decoder) decode(text []byte) ([]byte, error) {
	d.large = d.large || len(text) > largeValue
	if n := base64.StdEncoding.DecodedLen(len(text)); cap(d.scratch) < n {
		d.scratch = make([]byte, n)
	}
	n, err := base64.StdEncoding.Decode(d.scratch[:cap(d.scratch)], text)
	return d.scratch[:n], err
}

// keep copies data, or says why it cannot be used. If it equals last, it is last.
func keep(data, last []byte) (kept []byte, reason string) {
	switch {
	case len(data) > pki.MaxBytes:
		return nil, fmt.Sprintf("is larger than %d bytes", pki.MaxBytes)
	case len(data) > 0 && bytes.Equal(data, last):
		return last, ""
	case len(data) > 0:
		return bytes.Clone(data), ""
	}
	return nil, ""
}
