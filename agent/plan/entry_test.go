// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAnEntryOfNothingIsRefused(t *testing.T) {
	if _, err := (FileSpec{Field: RootCAData}).Entry("", nil, time.Time{}); err == nil {
		t.Error("no bytes became a file")
	}
}

func TestAnEntryThatIsNoBundleIsRefused(t *testing.T) {
	data := []byte("hello")
	if _, err := (FileSpec{Field: RootCAData}).Entry("", data[:4], time.Time{}); err == nil {
		t.Error("text became a file")
	}
	if string(data) != "hello" {
		t.Errorf("the newline was written into the caller's memory: %q", data)
	}
}

func TestABundleIsWrittenInItsCanonicalForm(t *testing.T) {
	canonical := slices.Concat(cas["a"], cas["b"])
	published := slices.Concat([]byte("# the first\n"), cas["a"], []byte("# the second\n"), cas["b"], cas["a"])
	for _, r := range policy.Files {
		if r.Field.Secret() {
			continue
		}
		e, err := r.Entry("r:5000", published, time.Time{})
		if err != nil || !bytes.Equal(e.Data, canonical) || e.Digest != DigestOf(canonical) || len(e.Certs) != 2 {
			t.Errorf("%s: %v, %d certificates in\n%s", r.Field, err, len(e.Certs), e.Data)
		}
		if got := strings.Join(e.Warnings, ", "); got != "text outside blocks, a certificate twice" {
			t.Errorf("%s: the warnings are %q", r.Field, got)
		}
	}
}

func TestBesideOtherWritersTheFilesHoldWhatWasPublished(t *testing.T) {
	published := slices.Concat([]byte("# the first\n"), cas["a"], cas["a"])
	for _, r := range besideBoth.Files {
		e, err := r.Entry("r:5000", published, time.Time{})
		if err != nil || !bytes.Equal(e.Data, published) {
			t.Errorf("%s: %v\n%s", r.Field, err, e.Data)
		}
		if _, err := r.Check(published); err != nil {
			t.Errorf("%s: the writer refuses it: %v", r.Field, err)
		}
	}
}

// TestTheWriterTakesWhatEntryMakesAndNothingElse: an agent that was taken over must not bring to the disk
// what Entry would have made something else of.
func TestTheWriterTakesWhatEntryMakesAndNothingElse(t *testing.T) {
	commented := slices.Concat([]byte("# the first\n"), cas["a"])
	alone, beside := FileSpec{Field: RootCAData}, FileSpec{Field: RootCAData, Beside: []Writer{MachineConfigDaemon}}
	for sentence, c := range map[string]struct {
		spec FileSpec
		data []byte
		good bool
	}{
		"the canonical form":                    {alone, cas["a"], true},
		"comments":                              {alone, commented, false},
		"CRLF":                                  {alone, bytes.ReplaceAll(cas["a"], []byte("\n"), []byte("\r\n")), false},
		"no final newline":                      {alone, bytes.TrimSpace(cas["a"]), false},
		"comments beside other writers":         {beside, commented, true},
		"p11-kit's format beside other writers": {beside, append([]byte("[p11-kit-object-v1]\n"), cas["a"]...), false},
		"no final newline beside other writers": {beside, bytes.TrimSpace(cas["a"]), false},
		"nothing":                               {alone, nil, false},
		"a pull secret": {FileSpec{Field: InternalRegistryPullSecret}, []byte(pullSecret() + "\n"),
			true},
		"a pull secret without its final newline": {FileSpec{Field: InternalRegistryPullSecret}, []byte(pullSecret()), false},
	} {
		if _, err := c.spec.Check(c.data); (err == nil) != c.good {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}

func TestTheWriterTakesAFileWithWhatIsHeld(t *testing.T) {
	for _, r := range []FileSpec{{Field: RootCAData}, {Field: RootCAData, Beside: []Writer{MachineConfigDaemon}}} {
		e, err := r.Entry("", append([]byte("# one\n"), cas["a"]...), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		more := e.with(bundle(RootCAData, "", "bc").Certs)
		if _, err := r.Check(more.Data); err != nil || names(more.Data) != "abc" {
			t.Errorf("beside %v: %q, %v", r.Beside, names(more.Data), err)
		}
	}
}

func TestAFileOfAnotherFormIsWrittenOnceAndLosesNothing(t *testing.T) {
	want := bundle(KubeAPIServerServingCAData, "", "ab")
	old := slices.Concat([]byte("# by hand\n"), cas["b"], cas["a"])
	in := Input{Desired: desired(want), Policy: policy, Observed: Observed{want.Key: {Kind: Regular, Digest: DigestOf(old),
		Mode: 0o644, Data: old}}}
	p := Compute(in)
	if len(p.Writes) != 1 || !bytes.Equal(p.Writes[0].Data, want.Data) ||
		len(p.Writes[0].Added)+len(p.Writes[0].Removed) != 0 || p.Shrinks() {
		t.Fatalf("the plan is\n%s", p)
	}
	in.Observed[want.Key] = File{Kind: Regular, Digest: want.Digest, Mode: 0o644, Data: want.Data}
	if p := Compute(in); !p.Empty() {
		t.Errorf("the second plan is\n%s", p)
	}
}
