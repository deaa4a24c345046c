// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/objects"
)

// events decodes a whole stream.
func events(r io.Reader) (out []event, err error) {
	d := newDecoder(r, nil, nil)
	for {
		e, err := d.next()
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
}

func TestEventsAreDecodedHoweverTheyAreWritten(t *testing.T) {
	// A value whose base64 has both characters that may be escaped.
	data := []byte{0xfb, 0xff, 0xfe}
	text := base64.StdEncoding.EncodeToString(data)
	if text != "+//+" {
		t.Fatal(text)
	}
	for sentence, in := range map[string]string{
		"as a server writes them": `{"type":"ADDED","object":{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},"spec":{"rootCAData":"+//+"}}}`,
		"with the type last":      `{"object":{"spec":{"rootCAData":"+//+"},"metadata":{"resourceVersion":"7","uid":"u","name":"n"}},"type":"ADDED"}`,
		"with white space": " \r\n\t{ \"type\" :\n\"ADDED\" , \"object\" : { \"metadata\" : { \"name\" : " +
			"\"n\",\"uid\":\"u\",\"resourceVersion\":\"7\"} , \"spec\" : { \"rootCAData\" : \"+//+\" } } } \n",
		"with escapes":                     `{"type":"\u0041DDED","object":{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},"spec":{"rootCAD\u0061ta":"\u002b\/\/+"}}}`,
		"with line breaks in the base64":   `{"type":"ADDED","object":{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},"spec":{"rootCAData":"+/\r\n/+\n"}}}`,
		"with the field twice: last wins":  `{"type":"ADDED","object":{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},"spec":{"rootCAData":7,"rootCAData":"+//+"}}}`,
		"with invalid UTF-8 where we skip": "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"n\",\"uid\":\"u\",\"resourceVersion\":\"7\"},\"spec\":{\"rootCAData\":\"+//+\",\"x\":\"\xff\"}}}",
		"with much that is not ours":       `{"type":"ADDED","object":{"metadata":{"name":"n","managedFields":[{"a":[{}]}],"uid":"u","resourceVersion":"7"},"spec":{"infra":{"rootCAData":"eA=="},"rootCAData":"+//+","cloudProviderCAData":null}},"x":[1,2,{"type":"DELETED"}]}`,
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := events(iotest.OneByteReader(strings.NewReader(in)))
			if !errors.Is(err, io.EOF) || len(got) != 1 {
				t.Fatalf("%d events, then %v", len(got), err)
			}
			want := event{kind: "ADDED", object: Object{Name: "n", UID: "u", ResourceVersion: "7",
				Fields: map[plan.Field]Field{plan.RootCAData: {Data: data}}}}
			if got[0].kind != want.kind || !same(got[0].object, want.object) {
				t.Errorf("decoded %+v", got[0])
			}
		})
	}
}

func TestUnusableObjectsAreNoErrors(t *testing.T) {
	for _, in := range []string{`{}`, `7`, `[]`, `null`, `{"type":7,"object":[]}`, `{"type":null,"object":null}`,
		`{"type":"ADDED","object":{"metadata":7,"spec":"x"}}`, `{"type":"ERROR","object":{"code":1e400,"message":{}}}`,
		`{"type":"ADDED","object":{"metadata":{"name":{},"annotations":[]},"spec":{"imageRegistryBundleData":{}}}}`} {
		if got, err := events(strings.NewReader(in)); !errors.Is(err, io.EOF) || len(got) != 1 {
			t.Errorf("%s: %d events, then %v", in, len(got), err)
		}
	}
}

func TestBrokenStreamsAreErrorsThatQuoteNothing(t *testing.T) {
	whole := string(line("ADDED", object(t, fields{"rootCAData": []byte("geheim")})))
	reset := errors.New("connection reset")
	for sentence, c := range map[string]struct {
		in   io.Reader
		want string
	}{
		"cut off":         {strings.NewReader(whole[:len(whole)/2]), errCutOff.Error()},
		"a web page":      {strings.NewReader("<html>geheim"), "not JSON at byte 0"},
		"a stray bracket": {strings.NewReader(whole + `]`), fmt.Sprintf("not JSON at byte %d", len(whole))},
		"an error of the connection": {io.MultiReader(strings.NewReader(whole[:9]), iotest.ErrReader(reset)),
			"connection reset"},
		"endless nesting": {strings.NewReader(strings.Repeat(`{"a":`, 20000)), "not JSON at byte 50000"},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := events(c.in)
			if err == nil || err.Error() != c.want {
				t.Errorf("error %q, want %q", err, c.want)
			}
		})
	}
}

func TestUnchangedFieldsKeepTheirMemory(t *testing.T) {
	one := large(t)
	two := bytes.Replace(one, []byte(`"resourceVersion":"100"`), []byte(`"resourceVersion":"101"`), 1)
	got, _ := events(bytes.NewReader(append(line("ADDED", one), line("MODIFIED", two)...)))
	if len(got) != 2 {
		t.Fatal(len(got))
	}
	for id, f := range got[0].object.Fields {
		g := got[1].object.Fields[id]
		if !sameField(f, g) {
			t.Errorf("%s differs", id)
		}
		if len(f.Data) > 0 && &f.Data[0] != &g.Data[0] {
			t.Errorf("%s was copied", id)
		}
		for i, e := range f.Entries {
			if &e.Data[0] != &g.Entries[i].Data[0] {
				t.Errorf("%s entry %d was copied", id, i)
			}
		}
	}
}

func TestMovedEntriesAreRecognised(t *testing.T) {
	list := func(es ...any) []byte { return line("ADDED", object(t, fields{"imageRegistryBundleData": es})) }
	a, b := entry("a", []byte("aa")), entry("b", []byte("bb"))
	got, _ := events(bytes.NewReader(append(list(a, b), list(b)...)))
	first, second := got[0].object.Fields[plan.ImageRegistryBundleData], got[1].object.Fields[plan.ImageRegistryBundleData]
	if &first.Entries[1].Data[0] != &second.Entries[0].Data[0] {
		t.Error("the entry was copied")
	}
}

func TestOnlyOurAnnotationsAreKept(t *testing.T) {
	got, _ := events(bytes.NewReader(line("ADDED", large(t))))
	if a := got[0].object.Annotations; len(a) != 1 || a[annotationPrefix+"pause"] != "until tuesday" {
		t.Errorf("kept %v", a)
	}
}

func TestAnEventTakesNoMoreThanItsBudget(t *testing.T) {
	d := newDecoder(io.MultiReader(strings.NewReader(`{"type":"ADDED","object":{"x":[`),
		endlessly(`"`+strings.Repeat("x", 1000)+`",`)), nil, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := d.next()
	runtime.ReadMemStats(&after)
	if !errors.Is(err, errEventSize) {
		t.Errorf("error %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("allocated %d bytes to skip what is not ours", n)
	}
}

func TestAValueTakesNoMoreThanItsBudget(t *testing.T) {
	d := newDecoder(io.MultiReader(strings.NewReader(`{"type":"`), endlessly("A")), nil, nil)
	if _, err := d.next(); !errors.Is(err, errValueSize) {
		t.Errorf("error %v", err)
	}
	if d.reader.total > 3*maxValue {
		t.Errorf("took %d bytes", d.reader.total)
	}
}

func endlessly(s string) io.Reader { return &endless{b: bytes.Repeat([]byte(s), 1+(1<<16)/len(s))} }

func TestDecodeObjectReadsOneControllerConfig(t *testing.T) {
	for sentence, c := range map[string]struct{ in, want string }{
		"one":              {string(object(t, nil)) + "\n", ""},
		"nothing":          {"", "decode object: EOF"},
		"two":              {string(object(t, nil)) + "{}", "decode object: more than one value in the input"},
		"another kind":     {`{"kind":"Secret"}`, `decode object: kind is "Secret", want ControllerConfig`},
		"no kind":          {`{}`, `decode object: kind is "", want ControllerConfig`},
		"YAML":             {"kind: ControllerConfig\n", "decode object: not JSON at byte 0"},
		"a truncated file": {string(object(t, nil)[:80]), "decode object: " + errCutOff.Error()},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := DecodeObject(strings.NewReader(c.in))
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// FuzzDecode compares with encoding/json where both accept, and lets nothing panic or grow.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED","object":{"metadata":{"name":"n"},"spec":{"rootCAData":"+\/\u002f+"}}}`))
	f.Add([]byte(`{"type":"ADDED","object":{"spec":{"imageRegistryBundleData":[{"file":"r..5000","data":"eA=="},{"file":"r..5000"},7]}}}`))
	f.Add([]byte(`{"object":{"kind":"Status","code":410,"message":"x"},"type":"ERROR"}`))
	f.Add([]byte("{\"type\":\"\\ud800\",\"object\":{\"spec\":{\"rootCAData\":\"\xff\"}}} {}"))
	f.Add(line("ADDED", object(f, fields{"rootCAData": certificate(f, "a"), "additionalTrustBundle": "%"})))
	corpus, err := objects.All(objects.Objects)
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range corpus {
		f.Add(line("MODIFIED", c.Object))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		d := newDecoder(bytes.NewReader(in), nil, nil)
		var p Projector
		for {
			e, err := d.next()
			if err != nil {
				return
			}
			got := e.object.Fields[plan.RootCAData]
			if want, ok := reference(in); ok && len(got.Data) > 0 && !bytes.Equal(got.Data, want) &&
				d.json.InputOffset() == int64(len(in)) {
				t.Errorf("decoded %q, encoding/json %q", got.Data, want)
			}
			desired := p.Project(e.object, specs(), newClock().now)
			paths := map[string]bool{}
			for _, e := range desired.Entries {
				spec := specs()[slices.IndexFunc(specs(), func(r plan.FileSpec) bool { return r.Field == e.Field })]
				if path, err := spec.PathOf(e.Name); err != nil || paths[path] {
					t.Errorf("%s leads to %q, as another does or not at all: %v", e.Key, path, err)
				} else {
					paths[path] = true
				}
				if len(e.Data) == 0 || e.Data[len(e.Data)-1] != '\n' || len(e.Certs) == 0 {
					t.Errorf("%s asks for nothing", e.Key)
				}
			}
		}
	})
}

// reference decodes rootCAData of an input that is one event. It stands back where encoding/json
// differs by design: it folds the case of names.
func reference(in []byte) ([]byte, bool) {
	var e struct {
		Object struct {
			Spec struct {
				RootCAData []byte `json:"rootCAData"`
			} `json:"spec"`
		} `json:"object"`
	}
	err := json.Unmarshal(in, &e)
	comparable := err == nil && !bytes.Contains(in, []byte(`\u`)) &&
		!bytes.ContainsFunc(in, func(r rune) bool { return r > 0x7f })
	for _, name := range []string{"object", "spec", "rootcadata"} {
		comparable = comparable && bytes.Count(bytes.ToLower(in), []byte(name)) == 1
	}
	return e.Object.Spec.RootCAData, comparable
}

func TestAnEventBehindALargeValueIsReadAndItsBuffersAreNot(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 2*largeValue)
	stream := slices.Concat(line("ADDED", object(t, fields{"rootCAData": big})),
		line("MODIFIED", object(t, fields{"rootCAData": []byte("y")})),
		line("MODIFIED", object(t, fields{"rootCAData": big, "cloudProviderCAData": []byte("z")})))
	d := newDecoder(bytes.NewReader(stream), nil, nil)
	for i, want := range [][]byte{big, []byte("y"), big} {
		e, err := d.next()
		if err != nil || !bytes.Equal(e.object.Fields[plan.RootCAData].Data, want) {
			t.Fatalf("event %d has %d bytes, want %d: %v", i, len(e.object.Fields[plan.RootCAData].Data), len(want), err)
		}
		if cap(d.scratch) > largeValue || cap(d.json.UnreadBuffer()) > largeValue {
			t.Errorf("event %d leaves %d and %d bytes of buffers", i, cap(d.scratch), cap(d.json.UnreadBuffer()))
		}
	}
	if _, err := d.next(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}
