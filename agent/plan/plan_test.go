// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

var policy = Policy{Files: []FileSpec{
	{Field: KubeAPIServerServingCAData, Path: "/etc/kubernetes/kubelet-ca.crt", Mode: 0o644,
		OnChange: []string{"a.service"}},
	{Field: ImageRegistryBundleData, Path: "/etc/docker/certs.d/{name}/ca.crt", Mode: 0o644},
	{Field: ImageRegistryBundleUserData, Path: "/etc/docker/certs.d/{name}/ca.crt", Mode: 0o644},
}}

func cert(name string) pki.Cert {
	return pki.Cert{Fingerprint: pki.Fingerprint(DigestOf([]byte(name))), Subject: name}
}

// entry is a desired file that holds the named certificates.
func entry(field Field, name string, certs ...string) Entry {
	e := Entry{Key: Key{field, name}}
	for _, c := range certs {
		e.Certs = append(e.Certs, cert(c))
		e.Data = append(e.Data, c...)
	}
	e.Digest = DigestOf(e.Data)
	return e
}

func kubelet(certs ...string) Entry { return entry(KubeAPIServerServingCAData, "", certs...) }

func desired(entries ...Entry) Desired {
	d := Desired{Verified: true, Entries: entries, Listed: map[Field]bool{}}
	for _, e := range entries {
		d.Listed[e.Field] = true
	}
	return d
}

func file(e Entry) File {
	return File{Kind: Regular, Digest: e.Digest, Mode: 0o644, Changed: time.Unix(1, 0)}
}

// disk observes the entries as they would lie there after a commit.
func disk(entries ...Entry) Observed {
	o := Observed{}
	for _, e := range entries {
		o[e.Key] = file(e)
	}
	return o
}

func known(entries ...Entry) map[Digest]pki.Content {
	k := map[Digest]pki.Content{}
	for _, e := range entries {
		k[e.Digest] = pki.Content{Certs: e.Certs, Whole: true}
	}
	return k
}

func owned(path string, e Entry) map[string]Claim {
	return map[string]Claim{path: {Key: e.Key, Digests: []Digest{e.Digest}}}
}

// brief is a plan as one readable line.
func brief(p Plan) string {
	var out []string
	for _, w := range p.Writes {
		out = append(out, fmt.Sprintf("write %s %s +%d -%d", w.Path, w.Cause, len(w.Added), len(w.Removed)))
	}
	for _, r := range p.Removes {
		out = append(out, "remove "+r.Path)
	}
	for _, r := range p.Refused {
		out = append(out, "refuse "+r.Key.String()+": "+r.Reason)
	}
	for _, k := range p.Retained {
		out = append(out, "retain "+k.Key.String()+": "+k.Reason)
	}
	if p.Owned != nil {
		out = append(out, fmt.Sprintf("own %d", len(p.Owned)))
	}
	return fmt.Sprint(out)
}

func TestCompute(t *testing.T) {
	const regPath = "/etc/docker/certs.d/r:5000/ca.crt"
	reg := entry(ImageRegistryBundleData, "r:5000", "r")
	user := entry(ImageRegistryBundleUserData, "r:5000", "u")
	other := entry(ImageRegistryBundleData, "other", "o")
	remembered := desired(kubelet("a", "b"))
	remembered.Verified = false
	regKey := Key{ImageRegistryBundleData, "r:5000"}
	unlisted := desired(kubelet("a"))
	unverified := desired(other)
	unverified.Verified = false
	refused := desired(other)
	refused.Refused = []Refusal{{regKey, "holds a private key"}}

	for sentence, c := range map[string]struct {
		in   Input
		want string
	}{
		"a missing file is written": {
			Input{Desired: desired(kubelet("a"))},
			"[write /etc/kubernetes/kubelet-ca.crt missing +1 -0]"},
		"an equal file is not touched": {
			Input{Desired: desired(kubelet("a")), Observed: disk(kubelet("a"))}, "[]"},
		"a grown bundle is written and says what it adds": {
			Input{Desired: desired(kubelet("a", "b")), Observed: disk(kubelet("a")), Known: known(kubelet("a"))},
			"[write /etc/kubernetes/kubelet-ca.crt different +1 -0]"},
		"a pruned bundle is mirrored and says what it drops": {
			Input{Desired: desired(kubelet("b")), Observed: disk(kubelet("a", "b")), Known: known(kubelet("a", "b"))},
			"[write /etc/kubernetes/kubelet-ca.crt different +0 -1]"},
		"a wrong mode is repaired": {
			Input{Desired: desired(kubelet("a")), Observed: Observed{kubelet("a").Key: {Kind: Regular,
				Digest: kubelet("a").Digest, Mode: 0o600}}, Known: known(kubelet("a"))},
			"[write /etc/kubernetes/kubelet-ca.crt mode +0 -0]"},
		"a wrong owner is repaired": {
			Input{Desired: desired(kubelet("a")), Observed: Observed{kubelet("a").Key: {Kind: Regular,
				Digest: kubelet("a").Digest, Mode: 0o644, UID: 7}}, Known: known(kubelet("a"))},
			"[write /etc/kubernetes/kubelet-ca.crt mode +0 -0]"},
		"a file whose commit failed is staged anew": {
			Input{Desired: desired(kubelet("a")), Observed: disk(kubelet("a")), Known: known(kubelet("a")),
				Unsynced: map[Key]bool{kubelet("a").Key: true}},
			"[write /etc/kubernetes/kubelet-ca.crt undurable +0 -0]"},
		"a symbolic link is refused, not replaced": {
			Input{Desired: desired(kubelet("a")), Observed: Observed{kubelet("a").Key: {Kind: Irregular, Reason: "is a link"}}},
			"[refuse kubeAPIServerServingCAData: is a link]"},
		"a name that is a path is refused": {
			Input{Desired: desired(entry(ImageRegistryBundleData, "../../etc", "x"))},
			`[refuse imageRegistryBundleData/../../etc: registry name "../../etc": host is empty or has an empty or over-long label]`},
		"a field that the host does not have is ignored": {
			Input{Desired: desired(entry(RootCAData, "", "x"))}, "[]"},
		"a new registry is claimed before it is written": {
			Input{Desired: desired(reg)}, "[write " + regPath + " missing +1 -0 own 1]"},
		"a registry that vanished from its list is removed": {
			Input{Desired: desired(other), Observed: disk(reg, other), Memory: Memory{Owned: owned(regPath, reg)}},
			"[remove " + regPath + "]"},
		"a registry that was never ours stays": {
			Input{Desired: desired(other), Observed: disk(reg, other)}, "[]"},
		"a registry that somebody else changed stays": {
			Input{Desired: desired(other), Observed: Observed{regKey: file(user), other.Key: file(other)},
				Memory: Memory{Owned: owned(regPath, reg)}},
			"[retain imageRegistryBundleData/r:5000: somebody else changed it]"},
		"a registry whose new content is refused keeps its last good file": {
			Input{Desired: refused, Observed: disk(reg, other), Memory: Memory{Owned: owned(regPath, reg)}},
			"[refuse imageRegistryBundleData/r:5000: holds a private key retain imageRegistryBundleData/r:5000: what the " +
				"ControllerConfig " +
				"asks for in its place is refused]"},
		"an empty or missing list removes nothing": {
			Input{Desired: unlisted, Observed: disk(kubelet("a"), reg), Memory: Memory{Owned: owned(regPath, reg)}},
			"[retain imageRegistryBundleData/r:5000: the list is empty, missing or invalid in the ControllerConfig]"},
		"what is only remembered removes nothing": {
			Input{Desired: unverified, Observed: disk(reg, other), Memory: Memory{Owned: owned(regPath, reg)}},
			"[retain imageRegistryBundleData/r:5000: a removal needs a verified read of the ControllerConfig since this host " +
				"booted]"},
		"a registry that moved to the other list is not removed": {
			Input{Desired: desired(user, other), Observed: Observed{user.Key: file(user), other.Key: file(other)},
				Memory: Memory{Owned: owned(regPath, reg)}},
			"[own 1]"},
		"a registry that is gone already is forgotten once that is durable": {
			Input{Desired: desired(other), Observed: disk(other), Memory: Memory{Owned: owned(regPath, reg)}},
			"[remove " + regPath + "]"},
		"a registry whose directory is gone altogether is left as it is": {
			Input{Desired: desired(other), Observed: Observed{regKey: {Reason: "its directory does not exist"},
				other.Key: file(other)},
				Memory: Memory{Owned: owned(regPath, reg)}},
			"[retain imageRegistryBundleData/r:5000: its directory does not exist]"},
		"a field that the administrator moved leaves the old file alone": {
			Input{Desired: desired(other), Observed: disk(other, reg), Memory: Memory{Owned: owned("/srv/old/ca.crt", reg)}},
			"[]"},
		"memory repairs a missing file": {
			Input{Desired: remembered}, "[write /etc/kubernetes/kubelet-ca.crt missing +2 -0]"},
		"memory adds what the file lacks": {
			Input{Desired: remembered, Observed: disk(kubelet("a")), Known: known(kubelet("a"))},
			"[write /etc/kubernetes/kubelet-ca.crt different +1 -0]"},
		"memory never takes a valid certificate away": {
			Input{Desired: remembered, Observed: disk(kubelet("a", "c")), Known: known(kubelet("a", "c"))},
			"[write /etc/kubernetes/kubelet-ca.crt different +1 -0]"},
		"memory leaves a file alone that holds all it remembers": {
			Input{Desired: remembered, Observed: disk(kubelet("c", "b", "a")), Known: known(kubelet("c", "b", "a"))}, "[]"},
		"memory replaces a file that does not parse": {
			Input{Desired: remembered, Observed: Observed{kubelet("a").Key: {Kind: Regular, Mode: 0o644,
				Digest: DigestOf([]byte("junk")), Data: []byte("junk")}}},
			"[write /etc/kubernetes/kubelet-ca.crt different +2 -0]"},
		"content that was not read is not replaced": {
			Input{Desired: desired(kubelet("a")), Observed: disk(kubelet("b"))},
			"[refuse kubeAPIServerServingCAData: what is there has not been read yet]"},
		"refusals of the ControllerConfig are carried through": {
			Input{Desired: Desired{Refused: []Refusal{{Key{RootCAData, ""}, "holds a private key"}}}},
			"[refuse rootCAData: holds a private key]"},
	} {
		t.Run(sentence, func(t *testing.T) {
			c.in.Policy = policy
			if got := brief(Compute(c.in)); got != c.want {
				t.Errorf("planned %s\n   want %s", got, c.want)
			}
		})
	}
}

func TestWritesKeepTheObjectsOrderAndRemovalsComeLast(t *testing.T) {
	reg := entry(ImageRegistryBundleData, "new", "n")
	old := entry(ImageRegistryBundleData, "old", "o")
	p := Compute(Input{Policy: policy, Desired: desired(kubelet("a"), reg), Observed: disk(old),
		Memory: Memory{Owned: owned("/etc/docker/certs.d/old/ca.crt", old)}})
	c := p.Commit()
	if len(c.Writes) != 2 || c.Writes[0].Key != kubelet("a").Key || c.Writes[1].Key != reg.Key || len(c.Removals) != 1 {
		t.Errorf("commit is %+v", c)
	}
}

func TestAClaimHoldsBothDigestsUntilTheCommitIsSeen(t *testing.T) {
	const path = "/etc/docker/certs.d/r:5000/ca.crt"
	before, after := entry(ImageRegistryBundleData, "r:5000", "r"), entry(ImageRegistryBundleData, "r:5000", "s")
	p := Compute(Input{Policy: policy, Desired: desired(after), Observed: disk(before), Known: known(before),
		Memory: Memory{Owned: owned(path, before)}})
	if got := p.Owned[path].Digests; !slices.Equal(got, []Digest{after.Digest, before.Digest}) {
		t.Fatalf("claimed %v before the commit", got)
	}
	killed := Compute(Input{Policy: policy, Desired: desired(after), Observed: disk(after),
		Memory: Memory{Owned: p.Owned}})
	if len(killed.Writes) != 1 || killed.Owned != nil {
		t.Errorf("an agent that was killed after the commit plans %s", brief(killed))
	}
	done := p.Done(p.Owned)
	p = Compute(Input{Policy: policy, Desired: desired(after), Observed: disk(after), Memory: Memory{Owned: done}})
	if got := done[path].Digests; !slices.Equal(got, []Digest{after.Digest}) || !p.Empty() || p.Owned != nil {
		t.Errorf("claimed %v after the commit, plan %s", got, brief(p))
	}
}

func TestEachRetryBeginsWithAnotherFieldAndEndsWithThoseThatFail(t *testing.T) {
	p := Plan{Removes: []Removal{{Key: Key{RootCAData, "r"}}, {Key: Key{ImageRegistryBundleData, "gone"}}}}
	for _, k := range []Key{{Field: CloudProviderCAData}, {ImageRegistryBundleData, "a"}, {ImageRegistryBundleData, "b"}} {
		p.Writes = append(p.Writes, Write{Entry: Entry{Key: k}})
	}
	failing := map[Field]bool{CloudProviderCAData: true}
	for failures, want := range []string{"3+2", "2+1 0+1|1+0", "0+1 2+1|1+0", "2+1 0+1|1+0", "2+1 0+1|1+0"} {
		var turns []string
		for _, turn := range p.Turns(failures, failing) {
			var parts []string
			for _, part := range turn {
				parts = append(parts, fmt.Sprintf("%d+%d", len(part.Writes), len(part.Removes)))
			}
			turns = append(turns, strings.Join(parts, " "))
		}
		if got := strings.Join(turns, "|"); got != want {
			t.Errorf("after %d failures the turns are %s, want %s", failures, got, want)
		}
	}
}

func TestQueriesAskOnceForWhatIsDesiredOrOwnedAndForFieldsOfOneFile(t *testing.T) {
	a, b := entry(ImageRegistryBundleData, "a", "a"), entry(ImageRegistryBundleData, "b", "b")
	q := Queries(desired(b), Memory{Owned: map[string]Claim{"/etc/docker/certs.d/a/ca.crt": {Key: a.Key},
		"/etc/docker/certs.d/b/ca.crt": {Key: Key{ImageRegistryBundleUserData, "b"}},
		"/former/c":                    {Key: Key{ImageRegistryBundleData, "c"}}, "d": {Key: Key{RootCAData, ""}},
		"e": {Key: Key{KubeAPIServerServingCAData, "x"}}}}, policy, map[Key]Digest{b.Key: b.Digest})
	want := []Query{{Key: a.Key}, {Key: b.Key, Known: b.Digest}, {Key: kubelet().Key}}
	if !reflect.DeepEqual(q, want) {
		t.Errorf("asked %v, want %v", q, want)
	}
	if q = policy.Queries([]Entry{b}, nil); !reflect.DeepEqual(q, []Query{{Key: b.Key}}) {
		t.Errorf("asked %v for one entry", q)
	}
}

// FuzzComputeSettles carries random plans out on a model of the disk: planning again must find
// nothing to do, no path may lie outside the table, and foreign files must survive.
func FuzzComputeSettles(f *testing.F) {
	f.Add([]byte{1, 2, 3}, []byte{4, 5}, []byte{1}, true)
	f.Add([]byte{0, 0, 0, 7}, []byte{9, 9, 1}, []byte{2, 7}, false)
	f.Fuzz(func(t *testing.T, want, have, own []byte, verified bool) {
		d := desired(entriesOf(want)...)
		d.Verified = verified
		o := disk(entriesOf(have)...)
		m := Memory{Owned: map[string]Claim{}}
		for _, e := range entriesOf(own) {
			if spec, _ := policy.File(e.Field); spec.Many() {
				path, _ := spec.PathOf(e.Name)
				m.Owned[path] = Claim{Key: e.Key, Digests: []Digest{e.Digest}}
			}
		}
		k := known(append(entriesOf(have), entriesOf(want)...)...)
		for pass := range 3 {
			p := Compute(Input{Policy: policy, Desired: d, Observed: o, Memory: m, Known: k})
			if pass == 2 && (!p.Empty() || p.Owned != nil) {
				t.Fatalf("the third pass still plans %s", brief(p))
			}
			carryOut(t, p, o, &m)
		}
	})
}

// entriesOf makes entries of distinct paths out of fuzz bytes: the high bits choose the file, the
// low ones its content.
func entriesOf(b []byte) (out []Entry) {
	seen := map[string]bool{}
	for _, x := range b {
		e := kubelet(string('a' + rune(x&3)))
		if n := x >> 2 & 7; n > 0 {
			e = entry(ImageRegistryBundleData, fmt.Sprintf("r%d", n), string('a'+rune(x&3)))
		}
		if !seen[e.Key.String()] {
			seen[e.Key.String()] = true
			out = append(out, e)
		}
	}
	return out
}

func carryOut(t *testing.T, p Plan, o Observed, m *Memory) {
	if p.Owned != nil {
		m.Owned = p.Owned
	}
	for _, w := range p.Writes {
		spec, _ := policy.File(w.Field)
		if path, err := spec.PathOf(w.Name); err != nil || path != w.Path {
			t.Fatalf("planned to write %q for %v", w.Path, w.Key)
		}
		o[w.Key] = file(w.Entry)
	}
	for _, r := range p.Removes {
		if cl, ok := m.Owned[r.Path]; !ok || r.Digest != o[r.Key].Digest || r.Digest != (Digest{}) &&
			!slices.Contains(cl.Digests, r.Digest) {
			t.Fatalf("planned to remove %q, which is not ours", r.Path)
		}
		delete(o, r.Key)
	}
	m.Owned = p.Done(m.Owned)
}

func TestWhatTheObjectNoLongerSaysIsCarriedOver(t *testing.T) {
	a, reg, user := kubelet("a"), entry(ImageRegistryBundleData, "r:5000", "r"),
		entry(ImageRegistryBundleUserData, "u", "u")
	before := desired(a, reg, user)
	both := entry(ImageRegistryBundleUserData, "r:5000", "x")
	gone := desired(reg)
	refusedEntry := desired(user, entry(ImageRegistryBundleData, "other", "o"))
	refusedEntry.Refused = []Refusal{{reg.Key, "cut off"}}
	for sentence, c := range map[string]struct {
		before, now Desired
		want        string
	}{
		"nothing is carried while all is asked for": {before, desired(a, reg, user), "a r u"},
		"a single file without a field is carried":  {before, desired(reg, user), "a* r u"},
		"a list that is missing is carried":         {before, desired(a, user), "a r* u"},
		"an entry that is refused is carried":       {before, refusedEntry, "a* o r* u"},
		"an entry that left a list is not carried": {before, desired(a, entry(ImageRegistryBundleData, "other", "o"),
			user), "a o u"},
		"what was carried is carried on":                   {gone.Carry(before, policy), desired(reg), "a* r u*"},
		"a path that is asked for again is not carried":    {desired(both), desired(reg), "r"},
		"a field that the host does not have is forgotten": {desired(entry(RootCAData, "", "x")), desired(a), "a"},
	} {
		t.Run(sentence, func(t *testing.T) {
			var got []string
			for _, e := range c.now.Carry(c.before, policy).Entries {
				mark := ""
				if e.Carried {
					mark = "*"
				}
				got = append(got, string(e.Data)+mark)
			}
			if fmt.Sprint(got) != "["+c.want+"]" {
				t.Errorf("desired became %v, want %s", got, c.want)
			}
		})
	}
}

func TestWhatIsCarriedRepairsAndIsReported(t *testing.T) {
	d := desired(entry(ImageRegistryBundleData, "r", "r")).Carry(desired(kubelet("a")), policy)
	p := Compute(Input{Policy: policy, Desired: d, Observed: disk(entry(ImageRegistryBundleData, "r", "r"))})
	if want := "[write /etc/kubernetes/kubelet-ca.crt missing +1 -0 retain kubeAPIServerServingCAData: it is empty or " +
		"missing in the ControllerConfig; the last good content stays]"; brief(p) != want {
		t.Errorf("planned %s\n   want %s", brief(p), want)
	}
}
