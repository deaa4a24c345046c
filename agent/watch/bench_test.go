// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
)

// endless repeats b for ever.
type endless struct {
	b []byte
	r bytes.Reader
}

func (e *endless) Read(p []byte) (int, error) {
	if e.r.Len() == 0 {
		e.r.Reset(e.b)
	}
	// What one read of an HTTP/2 body yields at most.
	return e.r.Read(p[:min(len(p), 16<<10)])
}

// BenchmarkDecodeUnchanged is one event whose fields equal those of the event before.
func BenchmarkDecodeUnchanged(b *testing.B) {
	one := line("MODIFIED", large(b))
	d := newDecoder(&endless{b: one}, nil, nil)
	benchmarkDecoder(b, d, len(one))
}

// BenchmarkDecodeChanged is one event in which every field of ours has changed.
func BenchmarkDecodeChanged(b *testing.B) {
	one, two := line("MODIFIED", large(b)), line("MODIFIED", large(b))
	d := newDecoder(&endless{b: append(bytes.Clone(one), two...)}, nil, nil)
	benchmarkDecoder(b, d, len(one))
}

func benchmarkDecoder(b *testing.B, d *decoder, size int) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.next(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeEncodingJSON is what the standard library needs for the same fields.
func BenchmarkDecodeEncodingJSON(b *testing.B) {
	one := line("MODIFIED", large(b))
	type entry struct {
		File string `json:"file"`
		Data []byte `json:"data"`
	}
	var e struct {
		Type   string `json:"type"`
		Object struct {
			Metadata struct {
				Name, UID, ResourceVersion string
			} `json:"metadata"`
			Spec struct {
				Serving   []byte  `json:"kubeAPIServerServingCAData"`
				Cloud     []byte  `json:"cloudProviderCAData"`
				Root      []byte  `json:"rootCAData"`
				Trust     []byte  `json:"additionalTrustBundle"`
				Registry  []entry `json:"imageRegistryBundleData"`
				Registry2 []entry `json:"imageRegistryBundleUserData"`
			} `json:"spec"`
		} `json:"object"`
	}
	d := json.NewDecoder(&endless{b: one})
	b.SetBytes(int64(len(one)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(&e); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCopy is the floor: the bytes, read and thrown away.
func BenchmarkCopy(b *testing.B) {
	one := line("MODIFIED", large(b))
	r := &endless{b: one}
	b.SetBytes(int64(len(one)))
	for b.Loop() {
		if _, err := io.CopyN(io.Discard, r, int64(len(one))); err != nil {
			b.Fatal(err)
		}
	}
}
