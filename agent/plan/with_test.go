// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
)

func TestTwoSourcesMakeOneDesire(t *testing.T) {
	entry := func(id Field) Entry { return Entry{Key: Key{Field: id}} }
	first := Desired{ControllerConfig: ControllerConfig{UID: "u"}, Verified: true, Paused: "why",
		Listed:  map[Field]bool{ImageRegistryBundleData: true},
		Entries: []Entry{entry(RootCAData), entry(AdditionalTrustBundle)},
		Refused: []Refusal{{Key: Key{Field: InternalRegistryPullSecret}}}}
	second := Desired{ControllerConfig: ControllerConfig{UID: "v"}, Verified: true,
		Entries: []Entry{entry(KubeletKubeconfigCAData)},
		Refused: []Refusal{{Key: Key{Field: KubeconfigCAData}}}}
	got := first.With(second)
	if want := "[rootCAData  kubeletKubeconfigCAData  additionalTrustBundle ]"; fmt.Sprint(got.Entries) != want {
		t.Errorf("entries %v, want %s", got.Entries, want)
	}
	if len(got.Refused) != 2 || got.Refused[0].Field != KubeconfigCAData {
		t.Errorf("refused %v", got.Refused)
	}
	if got.ControllerConfig.UID != "u" || !got.Verified || got.Paused != "why" || !got.Listed[ImageRegistryBundleData] {
		t.Errorf("what the ControllerConfig says became %+v", got)
	}
	if len(first.Entries) != 2 || len(first.Refused) != 1 || len(second.Entries) != 1 {
		t.Error("the parts were changed")
	}
	if second.Verified = false; first.With(second).Verified {
		t.Error("one part was not verified, and the whole is")
	}
}

func TestWithoutTheObjectItsFieldsAndItsVersionAreCarried(t *testing.T) {
	p := Policy{Files: []FileSpec{{Field: RootCAData, Path: "/a"}, {Field: KubeconfigCAData, Path: "/b"}}}
	before := Desired{ControllerConfig: ControllerConfig{UID: "u"}, Entries: []Entry{{Key: Key{Field: RootCAData}},
		{Key: Key{Field: KubeconfigCAData}, Digest: DigestOf([]byte("old"))}}}
	now := Desired{Verified: true, Partial: true, Entries: []Entry{{Key: Key{Field: KubeconfigCAData},
		Digest: DigestOf([]byte("new"))}}}
	got := now.Carry(before, p)
	if got.ControllerConfig.UID != "u" || len(got.Entries) != 2 || !got.Entries[0].Carried || got.Entries[1].Carried ||
		got.Entries[1].Digest != now.Entries[0].Digest {
		t.Errorf("have %+v", got)
	}
}

func TestWhatAnUnreadConfigMapHadIsKeptWithoutBlamingTheObject(t *testing.T) {
	p := Policy{Files: []FileSpec{{Field: KubeconfigCAData, Path: "/b"}}}
	e := Entry{Key: Key{Field: KubeconfigCAData}, Data: []byte("a"), Digest: DigestOf([]byte("a"))}
	d := Desired{Verified: true}.Carry(Desired{Entries: []Entry{e}}, p)
	got := Compute(Input{Policy: p, Desired: d, Observed: Observed{e.Key: File{Kind: Regular, Digest: e.Digest,
		Data: e.Data}}}).Retained
	if len(got) != 1 || got[0].Reason != "the ConfigMap has not been read, or does not have it; the last good content "+
		"stays" {
		t.Errorf("kept %+v", got)
	}
}

func TestTheSecondSourceIsNoPartOfTheProjection(t *testing.T) {
	entry := func(id Field, data string) Entry { return Entry{Key: Key{Field: id}, Digest: DigestOf([]byte(data))} }
	object := Desired{Entries: []Entry{entry(RootCAData, "a")}}
	if object.With(Desired{Entries: []Entry{entry(KubeconfigCAData, "b")}}).Projection() != object.Projection() {
		t.Error("the ConfigMap changed what the ControllerConfig asks for")
	}
	if object.With(Desired{Entries: []Entry{entry(CloudProviderCAData, "b")}}).Projection() == object.Projection() {
		t.Error("nothing changes it")
	}
}
