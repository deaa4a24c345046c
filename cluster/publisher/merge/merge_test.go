// SPDX-License-Identifier: Apache-2.0

package merge_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher/merge"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/objects"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

var (
	noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	root = plan.Key{Field: plan.RootCAData}

	// Their fingerprints are the same in every run, and so is the order in which they are published.
	a, b, c = objects.CA("a"), objects.CA("b"), objects.CA("c")
	key     = testpki.New("a", testpki.ECDSA).KeyPEM()
)

// sources are named by their place.
func sources(data ...[]byte) (all []merge.Source) {
	for i, d := range data {
		all = append(all, merge.Source{Name: fmt.Sprintf("source %d", i+1), Data: d})
	}
	return all
}

func missing(all ...merge.Source) []merge.Source {
	return append(all, merge.Source{Name: "ConfigMap x/y", Reason: merge.SourceMissing, Problem: "does not exist"})
}

func certs(data []byte) (names []string) {
	for _, c := range pki.Read(data).Certs {
		names = append(names, strings.TrimPrefix(c.Subject, "CN="))
	}
	return names
}

func fingerprints(data ...[]byte) (all []pki.Fingerprint) {
	for _, c := range pki.Read(slices.Concat(data...)).Certs {
		all = append(all, c.Fingerprint)
	}
	return all
}

// brief is a result on one line each: what is published, the reasons of the conditions, the events.
func brief(r merge.Result) string {
	out := "[" + strings.Join(certs(r.Data), " ") + "]"
	for _, c := range r.Conditions {
		out += " " + c.Reason
	}
	for _, e := range r.Events {
		out += " !" + e.Reason
	}
	return out
}

// kept is the memory of certificates that no source has since then.
func kept(since time.Time, data []byte) (all []v1alpha1.Certificate) {
	for _, fp := range fingerprints(data) {
		all = append(all, v1alpha1.Certificate{SHA256: fp.String(), KeptSince: &metav1.Time{Time: since}})
	}
	return all
}

func replaced(data []byte) []v1alpha1.Certificate {
	all := kept(noon, data)
	for i := range all {
		all[i].Replaced = true
	}
	return all
}

// force is what an administrator writes to have all of them go.
func force(certificates []v1alpha1.Certificate) merge.Force {
	return merge.ReadForce(map[string]string{merge.ForcedBy: "alice", merge.ForceReason: "test",
		merge.ForceRemoval: merge.ForceOf(certificates)})
}

func yes([]pki.Fingerprint) (bool, string) { return true, "" }
func no([]pki.Fingerprint) (bool, string)  { return false, "node x lacks c" }

var immediate = v1alpha1.Removal{Policy: v1alpha1.Immediate}

func TestWhatIsPublished(t *testing.T) {
	join := func(data ...[]byte) []byte { return slices.Concat(data...) }
	hour := v1alpha1.Removal{Policy: v1alpha1.Hold, Hold: new(v1alpha1.Duration("1h"))}
	deadline := v1alpha1.Removal{Policy: v1alpha1.WhenConverged, Deadline: new(v1alpha1.Duration("1h"))}
	for sentence, c := range map[string]struct {
		in   merge.Input
		want string
	}{
		"what a source has is published at once": {
			merge.Input{Sources: sources(a)}, "[a] Published Ready Converged !Added"},
		"nothing changes and nothing happens": {
			merge.Input{Sources: sources(a), Published: a}, "[a] Published Ready Converged"},
		"a certificate in two sources is published once": {
			merge.Input{Sources: sources(a, join(a, b)), Published: join(a, b)}, "[a b] Published Ready Converged"},
		"what was published keeps its order": {
			merge.Input{Sources: sources(join(a, b, c)), Published: join(b, a)}, "[b a c] Published Ready Converged !Added"},
		"a missing source leaves what is published": {
			merge.Input{Sources: missing(), Published: a}, "[a] LastGood SourceMissing SourcesNotReady"},
		"a missing source does not keep another one from growing": {
			merge.Input{Sources: missing(sources(b)...), Published: a}, "[a b] LastGood SourceMissing SourcesNotReady !Added"},
		"an empty source leaves what is published": {
			merge.Input{Sources: sources(nil), Published: a, Removal: immediate}, "[a] LastGood SourceEmpty SourcesNotReady"},
		"white space is no bundle": {
			merge.Input{Sources: sources([]byte("\n")), Published: a, Removal: immediate},
			"[a] LastGood SourceRefused SourcesNotReady"},
		"garbage leaves what is published": {
			merge.Input{Sources: sources(a[:100]), Published: a, Removal: immediate},
			"[a] LastGood SourceRefused SourcesNotReady"},
		"a source with a private key is refused whole": {
			merge.Input{Sources: sources(join(b, key)), Published: a, Removal: immediate},
			"[a] LastGood SourceRefused SourcesNotReady"},
		"a source that is too large is refused whole": {
			merge.Input{Sources: sources(slices.Repeat([]byte("#"), pki.MaxBytes+1)), Published: a},
			"[a] LastGood SourceRefused SourcesNotReady"},
		"without anything good there is nothing to publish": {
			merge.Input{Sources: missing()}, "[] NothingToPublish SourceMissing Converged"},
		"a certificate that was dropped waits for the nodes": {
			merge.Input{Sources: sources(b), Published: join(a, b), MayGo: no}, "[a b] Published Ready RemovalBlocked"},
		"and while nobody knows of the nodes, it stays": {
			merge.Input{Sources: sources(b), Published: join(a, b)}, "[a b] Published Ready RemovalBlocked"},
		"and goes when they have what remains": {
			merge.Input{Sources: sources(b), Published: join(a, b), MayGo: yes}, "[b] Published Ready Converged !Removed"},
		"but not in the write that brings a new one": {
			merge.Input{Sources: sources(join(b, c)), Published: join(a, b), MayGo: yes},
			"[a b c] Published Ready RemovalBlocked !Added"},
		"a deadline ends the waiting": {
			merge.Input{Sources: sources(b), Published: join(a, b), MayGo: no, Removal: deadline,
				Known: kept(noon.Add(-time.Hour), a)}, "[b] Published Ready Converged !DeadlinePassed !Removed"},
		"force lets go what it names": {
			merge.Input{Sources: sources(b), Published: join(a, b), MayGo: no, Known: kept(noon, a),
				Force: force(kept(noon, a))}, "[b] Published Ready Converged !RemovalForced !Removed"},
		"also what a hold keeps": {
			merge.Input{Sources: sources(b), Published: join(a, b), Removal: hour, Known: kept(noon, a),
				Force: force(kept(noon, a))}, "[b] Published Ready Converged !RemovalForced !Removed"},
		"also what went with everything else": {
			merge.Input{Sources: sources(b), Published: join(a, b), MayGo: no, Known: replaced(a),
				Force: force(replaced(a))}, "[b] Published Ready Converged !RemovalForced !Removed"},
		"not another certificate": {
			merge.Input{Sources: sources(b), Published: join(a, b), MayGo: no, Known: kept(noon, a),
				Force: force(kept(noon, c))}, "[a b] Published Ready RemovalBlocked"},
		"not one that was back meanwhile": {
			merge.Input{Sources: sources(b), Published: join(a, b), MayGo: no, Known: kept(noon.Add(-time.Minute), a),
				Force: force(kept(noon.Add(-time.Hour), a))}, "[a b] Published Ready RemovalBlocked"},
		"not in the write that brings a new one": {
			merge.Input{Sources: sources(join(b, c)), Published: join(a, b), MayGo: no, Known: kept(noon, a),
				Force: force(kept(noon, a))}, "[a b c] Published Ready RemovalBlocked !Added"},
		"not while a source is missing": {
			merge.Input{Sources: missing(sources(b)...), Published: join(a, b), MayGo: no, Known: kept(noon, a),
				Force: force(kept(noon, a))}, "[a b] LastGood SourceMissing SourcesNotReady"},
		"and not before it has passed": {
			merge.Input{Sources: sources(b), Published: join(a, b), MayGo: no, Removal: deadline,
				Known: kept(noon.Add(-time.Hour+time.Second), a)}, "[a b] Published Ready RemovalBlocked"},
		"a hold keeps it for its time": {
			merge.Input{Sources: sources(b), Published: join(a, b), Removal: hour}, "[a b] Published Ready Held"},
		"which is counted from when it went": {
			merge.Input{Sources: sources(b), Published: join(a, b), Removal: hour, Known: kept(noon.Add(-time.Hour), a)},
			"[b] Published Ready Converged !Removed"},
		"a clock that was ahead makes it wait longer": {
			merge.Input{Sources: sources(b), Published: join(a, b), Removal: hour, Known: kept(noon.Add(time.Hour), a)},
			"[a b] Published Ready Held"},
		"a hold without a time does not end": {
			merge.Input{Sources: sources(b), Published: join(a, b), Removal: v1alpha1.Removal{Policy: v1alpha1.Hold},
				Known: kept(noon.Add(-time.Hour), a)}, "[a b] Published Ready Held"},
		"Immediate takes it away at once": {
			merge.Input{Sources: sources(b), Published: join(a, b), Removal: immediate},
			"[b] Published Ready Converged !Removed"},
		"a missing source may have what Immediate would take away": {
			merge.Input{Sources: missing(sources(b)...), Published: join(a, b), Removal: immediate},
			"[a b] LastGood SourceMissing SourcesNotReady"},
		"all replaced at once: the new ones come and the old ones stay, even with Immediate": {
			merge.Input{Sources: sources(b), Published: a, Removal: immediate},
			"[a b] Published Ready ReplacedAtOnce !ReplacedAtOnce !Added"},
		"and stay at the next look": {
			merge.Input{Sources: sources(b), Published: join(a, b), Removal: immediate, Known: replaced(a)},
			"[a b] Published Ready ReplacedAtOnce"},
		"and while the source is away": {
			merge.Input{Sources: missing(), Published: join(a, b), Removal: immediate, Known: replaced(a)},
			"[a b] LastGood SourceMissing SourcesNotReady"},
		"even if every node has the new ones": {
			merge.Input{Sources: sources(b), Published: join(a, b), MayGo: yes, Known: replaced(a)},
			"[a b] Published Ready ReplacedAtOnce"},
		"until somebody names them": {
			merge.Input{Sources: sources(b), Published: join(a, b), Removal: immediate, Known: replaced(a),
				Replaced: fingerprints(a)}, "[b] Published Ready Converged !Removed"},
		"or one of them is back": {
			merge.Input{Sources: sources(a), Published: join(a, b), Removal: immediate, Known: replaced(a)},
			"[a] Published Ready Converged !Removed"},
		"replaced again, the first ones still stay": {
			merge.Input{Sources: sources(c), Published: join(a, b), Removal: immediate, Known: replaced(a)},
			"[a b c] Published Ready ReplacedAtOnce !ReplacedAtOnce !Added"},
		"what is published and damaged loses no certificate that can be read": {
			merge.Input{Sources: sources(b), Published: join(a, b[:100])},
			"[a b] Published Ready ReplacedAtOnce !ReplacedAtOnce !Added"},
		"what is published and no certificate stays until there is one": {
			merge.Input{Sources: missing(), Published: []byte("0")}, "[] NothingToPublish SourceMissing Converged"},
		"a field that vanished is not filled with less than it had": {
			merge.Input{Sources: sources(b), Known: append(kept(noon, a), kept(noon, b)...)},
			"[] Lost Ready RemovalBlocked"},
		"and is filled when the sources have all of it": {
			merge.Input{Sources: sources(a, b), Known: append(kept(noon, a), kept(noon, b)...)},
			"[b a] Published Ready Converged !Added"},
		"or when what they lack may go": {
			merge.Input{Sources: sources(b), Removal: immediate, Known: append(kept(noon, a), kept(noon, b)...)},
			"[b] Published Ready Converged !Added"},
		"what would no longer fit a node is not published": {
			merge.Input{Sources: sources(many), Published: join(a, b)}, "[a b] Refused Ready ReplacedAtOnce"},
		"a field that takes no certificates is refused": {
			merge.Input{Key: plan.Key{Field: plan.InternalRegistryPullSecret}, Sources: sources(b), Published: a},
			"[a] Refused"},
		"so is a registry that no node takes": {
			merge.Input{Key: plan.Key{Field: plan.ImageRegistryBundleData, Name: "../x"}, Sources: sources(b)}, "[] Refused"},
	} {
		t.Run(sentence, func(t *testing.T) {
			c.in.Now = noon
			if c.in.Key == (plan.Key{}) {
				c.in.Key = root
			}
			r := merge.Merge(c.in)
			if got := brief(r); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if len(c.in.Published) > 0 && len(r.Data) == 0 {
				t.Error("what is published is emptied")
			}
		})
	}
}

// many are as many certificates as a bundle may have.
var many = func() (all []byte) {
	for i := range pki.MaxCerts {
		all = append(all, objects.CA(fmt.Sprint(i))...)
	}
	return all
}()

func TestTheOrderOfSourcesDoesNotMatter(t *testing.T) {
	all := missing(sources(slices.Concat(a, b), c, nil)...)
	want := merge.Merge(merge.Input{Key: root, Sources: all, Now: noon})
	slices.Reverse(all)
	got := merge.Merge(merge.Input{Key: root, Sources: all, Now: noon})
	if !bytes.Equal(got.Data, want.Data) || fmt.Sprint(got.Conditions) != fmt.Sprint(want.Conditions) {
		t.Errorf("got\n%s\n%v\nwant\n%s\n%v", got.Data, got.Conditions, want.Data, want.Conditions)
	}
}

func TestAConditionNamesTheSourceAndNotItsContent(t *testing.T) {
	r := merge.Merge(merge.Input{Key: root, Sources: missing(sources(slices.Concat(b, key))...), Published: a, Now: noon})
	said := fmt.Sprint(r.Conditions, r.Events)
	for _, want := range []string{"source 1: holds a private key", "ConfigMap x/y: does not exist"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in %s", want, said)
		}
	}
	if strings.Contains(said, "PRIVATE") || strings.Contains(said, "BEGIN") {
		t.Errorf("content is in %s", said)
	}
}

func TestWhatIsKeptIsRememberedBeforeTheWrite(t *testing.T) {
	in := merge.Input{Key: root, Sources: sources(b), Published: a, Now: noon, Removal: immediate}
	first := merge.Merge(in)
	old := first.Certificates[0]
	if !first.Remember || !old.Replaced || old.KeptSince == nil || !old.KeptSince.Time.Equal(noon) {
		t.Fatalf("got %+v", first)
	}
	in.Published, in.Known, in.Now = first.Data, first.Certificates, noon.Add(time.Hour)
	if again := merge.Merge(in); again.Remember || !again.Certificates[0].KeptSince.Time.Equal(noon) {
		t.Errorf("at the next look: %+v", again)
	}
}

func TestAHoldSaysWhenItEnds(t *testing.T) {
	r := merge.Merge(merge.Input{Key: root, Sources: sources(b), Published: slices.Concat(a, b), Now: noon,
		Removal: v1alpha1.Removal{Policy: v1alpha1.Hold, Hold: new(v1alpha1.Duration("90m"))}})
	if !r.Next.Equal(noon.Add(90 * time.Minute)) {
		t.Errorf("the next look is at %v", r.Next)
	}
}

func TestTheAnnotationNamesCertificates(t *testing.T) {
	fp := fingerprints(a)[0]
	got := merge.Named(" sha256:" + fp.String() + ",x,sha256:,sha256:ab, ,sha256:" + strings.Repeat("z", 64))
	if !slices.Equal(got, fingerprints(a)) {
		t.Errorf("got %v", got)
	}
}

func TestForceNeedsANameAndAReason(t *testing.T) {
	in := merge.Input{Key: root, Sources: sources(b), Published: slices.Concat(a, b), MayGo: no, Known: kept(noon, a),
		Now: noon}
	good := map[string]string{merge.ForcedBy: "alice\n", merge.ForceReason: "n2 burnt", merge.ForceRemoval: "x, sha256:y@z,@," +
		merge.ForceOf(append(kept(noon, a), v1alpha1.Certificate{SHA256: "of a source"}))}
	in.Force = merge.ReadForce(good)
	r := merge.Merge(in)
	want := "sha256:" + fingerprints(a)[0].String() + ` goes although not every node is known to have what remains: alice\n ` +
		"forces it: n2 burnt"
	if len(r.Bypassed) != 1 || r.Bypassed[0] != want || r.Events[0].Note != want || !r.Events[0].Warning {
		t.Errorf("got %q and %+v, want %q", r.Bypassed, r.Events, want)
	}
	for missing := range good {
		less := maps.Clone(good)
		delete(less, missing)
		in.Force = merge.ReadForce(less)
		if r := merge.Merge(in); len(r.Bypassed) > 0 || brief(r) != "[a b] Published Ready RemovalBlocked" {
			t.Errorf("without %s: %s", missing, brief(r))
		}
	}
}

func TestTheNodesAreAskedAboutWhatWouldBeLeft(t *testing.T) {
	var asked []pki.Fingerprint
	merge.Merge(merge.Input{Key: root, Sources: sources(b), Published: slices.Concat(a, b, c), Now: noon,
		MayGo: func(left []pki.Fingerprint) (bool, string) { asked = append(asked, left...); return false, "x" }})
	if !slices.Equal(asked, slices.Concat(fingerprints(b), fingerprints(b))) { // once for each that would go
		t.Errorf("asked about %v", asked)
	}
}
