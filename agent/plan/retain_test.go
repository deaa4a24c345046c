// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

var (
	noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	// One CA for each letter; "x" ended an hour before noon.
	cas = func() map[string][]byte {
		all := map[string][]byte{"x": testpki.NewFrom(x509.Certificate{NotBefore: noon.Add(-48 * time.Hour),
			NotAfter: noon.Add(-time.Hour)}, testpki.ECDSA).PEM()}
		for _, name := range []string{"a", "b", "c", "d"} {
			all[name] = testpki.NewFrom(x509.Certificate{NotBefore: noon.Add(-48 * time.Hour),
				NotAfter: noon.Add(48 * time.Hour)}, testpki.ECDSA).PEM()
		}
		return all
	}()
)

func fingerprint(name string) pki.Fingerprint { return pki.Read(cas[name]).Certs[0].Fingerprint }

// names lists the certificates in a file by letter.
func names(data []byte) string {
	var out []string
	for _, c := range pki.Read(data).Certs {
		for name := range cas {
			if c.Fingerprint == fingerprint(name) {
				out = append(out, name)
			}
		}
	}
	return strings.Join(out, "")
}

// bundle is an entry with the CAs of these letters.
func bundle(field Field, name, letters string) Entry {
	var data []byte
	for _, l := range letters {
		data = append(data, cas[string(l)]...)
	}
	r, _ := policy.File(field)
	e, err := r.Entry(name, data, time.Time{})
	if err != nil {
		panic(err)
	}
	return e
}

func ca(letters string) Entry { return bundle(KubeAPIServerServingCAData, "", letters) }

// machine is a host on which plans are carried out, with a clock that a test moves.
type machine struct {
	t      *testing.T
	policy Policy
	memory Memory
	disk   map[Key][]byte
	now    Moment
	ask    map[pki.Fingerprint]string
	plan   Plan
}

func newMachine(t *testing.T, hold time.Duration) *machine {
	p := policy
	p.Trust = Trust{Hold: hold}
	return &machine{t: t, policy: p, disk: map[Key][]byte{}, memory: Memory{Owned: map[string]Claim{}},
		now: Moment{Boot: "boot1", Uptime: time.Hour}}
}

// pass plans, carries out and checks that planning again would do nothing.
func (m *machine) pass(d Desired) *machine {
	m.t.Helper()
	for again := range 2 {
		o := Observed{}
		for k, data := range m.disk {
			o[k] = File{Kind: Regular, Digest: DigestOf(data), Mode: 0o644, Data: data}
		}
		p := Compute(Input{Policy: m.policy, Desired: d, Observed: o, Memory: m.memory, Now: m.now, Answers: m.ask})
		if again == 1 && !p.Empty() {
			m.t.Fatalf("planning again gives %s", brief(p))
		}
		for _, w := range p.Writes {
			m.disk[w.Key] = w.Data
		}
		for _, r := range p.Removes {
			delete(m.disk, r.Key)
		}
		if p.Owned != nil {
			m.memory.Owned = p.Owned
		}
		m.memory.Owned = p.Done(m.memory.Owned)
		if p.Holds != nil {
			m.memory.Holds = p.Holds
		}
		m.plan = p
	}
	return m
}

// has checks which CAs are in the kubelet's bundle, and for how long how many of them are held.
func (m *machine) has(letters string, held ...string) {
	m.t.Helper()
	if got := names(m.disk[Key{Field: KubeAPIServerServingCAData}]); got != letters {
		m.t.Errorf("on disk is %q, want %q", got, letters)
	}
	var got []string
	for _, h := range m.plan.Held {
		got = append(got, fmt.Sprintf("%v %s", h.Left, h.Reason))
	}
	if !slices.Equal(got, held) {
		m.t.Errorf("held: %q\nwant: %q", got, held)
	}
}

func (m *machine) later(d time.Duration) *machine { m.now.Uptime += d; return m }

func TestADroppedCertificateStaysForTheHold(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("ab"))).has("ab")
	m.pass(desired(ca("bc"))).has("bca", "1h0m0s "+waits)
	m.later(59*time.Minute).pass(desired(ca("bc"))).has("bca", "1m0s "+waits)
	m.later(time.Minute).pass(desired(ca("bc"))).has("bc")
	if len(m.memory.Holds) != 0 {
		t.Errorf("remembered after the end: %v", m.memory.Holds)
	}
}

func TestEachDroppedCertificateHasItsOwnHold(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("abc")))
	m.pass(desired(ca("bc")))
	m.later(30*time.Minute).pass(desired(ca("c"))).has("cba", "1h0m0s "+waits, "30m0s "+waits)
	m.later(30*time.Minute).pass(desired(ca("c"))).has("cb", "30m0s "+waits)
}

func TestAHoldBeginsAnewWhenTheCertificateHadReturned(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("ab")))
	m.later(time.Minute).pass(desired(ca("b")))
	m.later(50 * time.Minute).pass(desired(ca("ab"))).has("ab")
	m.later(50*time.Minute).pass(desired(ca("b"))).has("ba", "1h0m0s "+waits)
}

func TestAHoldCountsTheTimeOfEarlierBootsAndNotTheTimeOff(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("ab")))
	m.pass(desired(ca("b")))
	m.later(20*time.Minute).pass(desired(ca("b"))).has("ba", "40m0s "+waits)
	m.now = Moment{Boot: "boot2", Uptime: 5 * time.Minute}
	m.pass(desired(ca("b"))).has("ba", "40m0s "+waits)
	m.later(40 * time.Minute).pass(desired(ca("b"))).has("b")
}

func TestWithoutMemoryAHoldBeginsAnew(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("ab")))
	m.pass(desired(ca("b")))
	m.memory.Holds = nil
	m.later(time.Hour).pass(desired(ca("b"))).has("ba", "1h0m0s "+waits)
}

func TestAnExpiredCertificateGoesAtOnceIfTheClockIsBelieved(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("ax")))
	m.pass(desired(ca("a"))).has("ax", "1h0m0s "+waits)
	m.now.Wall = noon
	m.pass(desired(ca("a"))).has("a")
}

func TestAnExpiredCertificateThatIsPublishedStays(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.now.Wall = noon
	m.pass(desired(ca("ax"))).has("ax")
}

func TestAHoldOfZeroMirrorsTheObject(t *testing.T) {
	m := newMachine(t, 0)
	m.pass(desired(ca("ab")))
	m.pass(desired(ca("b"))).has("b")
}

func TestBesideAnotherWriterExactlyWhatIsPublishedIsOnDisk(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.policy.Trust.Mirror = true
	m.pass(desired(ca("ab")))
	m.pass(desired(ca("b"))).has("b")
}

func TestADisjointBundleIsFirstTheUnion(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("ab")))
	m.pass(desired(ca("cd"))).has("cdab", "1h0m0s "+waits, "1h0m0s "+waits)
}

func TestARevokedCertificateGoesAtOnceAndNeverTheLastUsable(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("ab")))
	d := desired(ca("b"))
	d.Revoked = []pki.Fingerprint{fingerprint("a")}
	m.pass(d).has("b")
	if len(m.plan.Refused) != 0 {
		t.Errorf("refused %v", m.plan.Refused)
	}

	m = newMachine(t, time.Hour)
	m.pass(desired(ca("ax")))
	d = desired(ca("x"))
	d.Revoked = []pki.Fingerprint{fingerprint("a")}
	m.now.Wall = noon
	m.pass(d).has("xa", "0s it is the last usable certificate")
}

func TestARevokedCertificateThatIsPublishedStaysAndIsReported(t *testing.T) {
	m := newMachine(t, time.Hour)
	d := desired(ca("ab"))
	d.Revoked = []pki.Fingerprint{fingerprint("a")}
	m.pass(d).has("ab")
	if len(m.plan.Refused) != 1 || !strings.Contains(m.plan.Refused[0].Reason, "shall be revoked and is published") {
		t.Errorf("refused %v", m.plan.Refused)
	}
}

func TestARevokedCertificateLeavesContentThatWasOnlyKept(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("ab"), bundle(ImageRegistryBundleData, "r", "c")))
	d := desired(bundle(ImageRegistryBundleData, "r", "c")).Carry(desired(ca("ab")), m.policy)
	d.Revoked = []pki.Fingerprint{fingerprint("a")}
	m.pass(d).has("b")
	d.Revoked = append(d.Revoked, fingerprint("b"))
	m.disk[ca("a").Key] = ca("ab").Data
	m.pass(d).has("ab", "0s it is the last usable certificate", "0s it is the last usable certificate")
}

func TestWhatIsRememberedNeverTakesACertificateAway(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.disk[ca("a").Key] = ca("cd").Data
	d := desired(ca("ab"))
	d.Verified, d.Revoked = false, []pki.Fingerprint{fingerprint("c")}
	m.pass(d).has("abcd")
	m.later(48 * time.Hour).pass(d).has("abcd")
	if len(m.memory.Holds) != 0 {
		t.Errorf("a hold counts without a verified read: %v", m.memory.Holds)
	}
}

func TestACertificateAddedByHandSurvivesRepairAndGoesAfterTheHold(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.disk[ca("a").Key] = ca("ad").Data
	m.pass(desired(ca("ab"))).has("abd", "1h0m0s "+waits)
	m.later(time.Hour).pass(desired(ca("ab"))).has("ab")
}

func TestTrustInADamagedFileIsNotLostWithIt(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.disk[ca("a").Key] = append(slices.Clone(ca("cd").Data), ca("a").Data[:200]...)
	m.pass(desired(ca("a"))).has("acd", "1h0m0s "+waits, "1h0m0s "+waits)
}

func TestAPauseKeepsWhatWouldGoAndLetsTrustGrow(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("ax")))
	d := desired(ca("ab"))
	d.Paused, d.Revoked = "change freeze", []pki.Fingerprint{fingerprint("x")}
	m.now.Wall = noon
	m.later(2*time.Hour).pass(d).has("abx", "1h0m0s paused: change freeze")
	m.later(2*time.Hour).pass(d).has("abx", "-1h0m0s paused: change freeze")
	d.Paused = ""
	m.pass(d).has("ab")
}

func TestAnOperatorsConfirmationEndsEveryHold(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("ab")))
	d := desired(ca("b"))
	d.Now = true
	m.pass(d).has("b")
}

func TestTheTrustSourceShrinksOnlyAfterProof(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.policy.Trust.Source = KubeAPIServerServingCAData
	m.pass(desired(ca("ab")))
	m.pass(desired(ca("b")))
	m.later(time.Hour).pass(desired(ca("b"))).has("ba", "0s "+asking)
	q := m.plan.Question
	if q == nil || pki.SetDigest(q.Left) != pki.SetDigest(ca("b").Certs) {
		t.Fatalf("asked %+v", q)
	}
	m.ask = map[pki.Fingerprint]string{pki.SetDigest(q.Left): "unknown authority"}
	m.pass(desired(ca("b"))).has("ba", "0s "+notVerified+"unknown authority")
	m.ask[pki.SetDigest(q.Left)] = ""
	m.pass(desired(ca("b"))).has("b")
}

func TestARegistryThatIsNoLongerListedIsHeld(t *testing.T) {
	r, s, u := bundle(ImageRegistryBundleData, "r", "a"), bundle(ImageRegistryBundleData, "s", "b"),
		bundle(ImageRegistryBundleData, "u", "c")
	m := newMachine(t, time.Hour)
	m.pass(desired(r, s, u))
	m.pass(desired(r, s)).has("", "1h0m0s "+waits)
	m.later(30 * time.Minute).pass(desired(r, s, u)).has("")
	m.pass(desired(r, s))
	m.later(59*time.Minute).pass(desired(r, s)).has("", "1m0s "+waits)
	m.later(time.Minute).pass(desired(r, s)).has("")
	if _, still := m.disk[u.Key]; still || len(m.disk) != 2 || len(m.memory.Holds) != 0 {
		t.Errorf("left are %v and the holds %v", m.disk, m.memory.Holds)
	}
}

func TestMoreThanHalfOfTheRegistriesGoneAtOnceWaitsForAnOperator(t *testing.T) {
	r, s, u := bundle(ImageRegistryBundleData, "r", "a"), bundle(ImageRegistryBundleData, "s", "b"),
		bundle(ImageRegistryBundleData, "u", "c")
	m := newMachine(t, time.Hour)
	m.pass(desired(r, s, u))
	m.pass(desired(r))
	m.later(48*time.Hour).pass(desired(r)).has("", "0s "+massRemoval, "0s "+massRemoval)
	d := desired(r)
	d.Now = true
	if m.pass(d).has(""); len(m.disk) != 1 {
		t.Errorf("left are %d files", len(m.disk))
	}
}

func TestHalfOfTheRegistriesMayGoTogether(t *testing.T) {
	r, s := bundle(ImageRegistryBundleData, "r", "a"), bundle(ImageRegistryBundleData, "s", "b")
	m := newMachine(t, time.Hour)
	m.pass(desired(r, s))
	m.pass(desired(r))
	if m.later(time.Hour).pass(desired(r)).has(""); len(m.disk) != 1 {
		t.Errorf("left are %d files", len(m.disk))
	}
}

func TestARevokedOrExpiredRegistryCAGoesWithItsFile(t *testing.T) {
	r, s, x := bundle(ImageRegistryBundleData, "r", "a"), bundle(ImageRegistryBundleData, "s", "b"),
		bundle(ImageRegistryBundleData, "x", "x")
	m := newMachine(t, time.Hour)
	m.pass(desired(r, s, x))
	m.now.Wall = noon
	d := desired(r)
	d.Revoked = []pki.Fingerprint{fingerprint("b")}
	if m.pass(d).has(""); len(m.disk) != 1 {
		t.Errorf("left are %d files", len(m.disk))
	}
}

func TestABundleNeverGrowsPastWhatTheWriterTakes(t *testing.T) {
	many := make([]pki.Cert, pki.MaxCerts)
	for i := range many {
		many[i] = cert(fmt.Sprint(i))
	}
	if e := ca("ab").with(many); len(e.Certs) != pki.MaxCerts || e.Digest != DigestOf(e.Data) {
		t.Errorf("%d certificates", len(e.Certs))
	}
}

// FuzzRetain publishes random bundles at random moments: what is published is always on disk, what is
// not leaves no sooner than after the hold, and no later than at the first look after it.
func FuzzRetain(f *testing.F) {
	f.Add([]byte{3, 10, 12, 59, 4, 61, 15, 0})
	f.Add([]byte{1, 1, 2, 30, 1, 30, 2, 30})
	f.Fuzz(func(t *testing.T, steps []byte) {
		m := newMachine(t, time.Hour)
		missing := map[string]time.Duration{}
		for len(steps) > 1 {
			letters := ""
			for i, l := range "abcd" {
				if steps[0]&(1<<i) != 0 {
					letters += string(l)
				}
			}
			m.later(time.Duration(steps[1]) * time.Minute)
			if steps = steps[2:]; letters == "" {
				continue
			}
			m.pass(desired(ca(letters)))
			on := names(m.disk[ca("a").Key])
			for _, l := range []string{"a", "b", "c", "d"} {
				since, was := missing[l]
				switch published, there := strings.Contains(letters, l), strings.Contains(on, l); {
				case published && !there:
					t.Fatalf("%s is published and not on disk", l)
				case published:
					missing[l] = -1
				case was && since < 0:
					missing[l] = m.now.Uptime
				case was && there != (m.now.Uptime-since < time.Hour):
					t.Fatalf("%s, missing for %v, on disk: %v", l, m.now.Uptime-since, there)
				case was && !there:
					delete(missing, l)
				}
			}
		}
	})
}

func TestMemoryDoesNotGrowWithHistory(t *testing.T) {
	m := newMachine(t, time.Hour)
	for i := range 200 {
		letter := string("abcd"[i%4])
		m.later(10 * time.Minute).pass(desired(ca(letter), bundle(ImageRegistryBundleData, "r", letter),
			bundle(ImageRegistryBundleData, "s", letter), bundle(ImageRegistryBundleData, fmt.Sprint("n", i%8), letter)))
	}
	d := desired(ca("a"), bundle(ImageRegistryBundleData, "r", "a"), bundle(ImageRegistryBundleData, "s", "a"))
	d.Now = true
	m.pass(d)
	if m.later(time.Hour).pass(d); len(m.memory.Holds) != 0 || len(m.memory.Owned) != 2 || len(m.disk) != 3 {
		t.Errorf("left are %d holds, %d claims, %d files", len(m.memory.Holds), len(m.memory.Owned), len(m.disk))
	}
	m.memory.Holds = map[HoldKey]Hold{{Path: "/old"}: {}}
	if m.pass(d); len(m.memory.Holds) != 0 {
		t.Error("a hold of a field that this host does not have is remembered")
	}
}

func TestBesideAnotherWriterTheKubeconfigsStillWaitForProof(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.policy.Trust.Mirror, m.policy.Trust.Source = true, KubeconfigCAData
	kubelets := FileSpec{Field: KubeletKubeconfigCAData, Path: "/var/lib/kubelet/kubeconfig"}
	m.policy.Files = append(slices.Clone(m.policy.Files), kubelets)
	of := func(letters string) Desired {
		e, err := kubelets.Entry("", ca(letters).Data, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		d := desired(e)
		d.Listed = nil
		return d
	}
	m.disk[Key{Field: KubeletKubeconfigCAData}] = ca("ab").Data
	m.pass(of("b"))
	if got := names(m.disk[Key{Field: KubeletKubeconfigCAData}]); got != "ba" || m.plan.Question == nil {
		t.Errorf("without proof the kubelet's kubeconfig has %q", got)
	}
	m.ask = map[pki.Fingerprint]string{pki.SetDigest(ca("b").Certs): ""}
	m.pass(of("b"))
	if got := names(m.disk[Key{Field: KubeletKubeconfigCAData}]); got != "b" {
		t.Errorf("with proof it has %q", got)
	}
}

func TestAHoldBeginsAnewWhenTheCertificateReturnedToAFileThatCouldNotBeRead(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.pass(desired(ca("ab"))).pass(desired(ca("b"))).later(50 * time.Minute)
	unreadable := Observed{ca("a").Key: {Kind: Unreadable, Reason: "input/output error"}}
	p := Compute(Input{Policy: m.policy, Desired: desired(ca("ab")), Observed: unreadable, Memory: m.memory, Now: m.now})
	if p.Holds != nil {
		m.memory.Holds = p.Holds
	}
	m.later(20*time.Minute).pass(desired(ca("b"))).has("ba", "1h0m0s "+waits)
}

func TestAFileThatIsNamedAgainIsNotMissingEvenIfItIsRefused(t *testing.T) {
	m := newMachine(t, time.Hour)
	r, s := bundle(ImageRegistryBundleData, "r", "a"), bundle(ImageRegistryBundleData, "s", "a")
	m.pass(desired(r, s)).pass(desired(s)).later(50 * time.Minute)
	again := desired(s)
	again.Refused = []Refusal{{Key: r.Key, Reason: "is cut off"}}
	m.pass(again).later(20 * time.Minute).pass(desired(s))
	if _, there := m.disk[r.Key]; !there || len(m.plan.Held) != 1 || m.plan.Held[0].Left != time.Hour {
		t.Errorf("there: %v, held: %v", there, m.plan.Held)
	}
}

func TestNoHoldIsRememberedOfAFileThatNobodyNamesOrOwns(t *testing.T) {
	m := newMachine(t, time.Hour)
	theirs, s := bundle(ImageRegistryBundleData, "r", "ab"), bundle(ImageRegistryBundleData, "s", "a")
	m.disk[theirs.Key] = theirs.Data
	m.pass(desired(bundle(ImageRegistryBundleData, "r", "a"), s))
	if len(m.plan.Held) != 1 || len(m.memory.Holds) != 1 {
		t.Fatalf("held: %v, remembered: %v", m.plan.Held, m.memory.Holds)
	}
	m.pass(desired(s))
	if string(m.disk[theirs.Key]) != string(theirs.Data) || len(m.memory.Holds) != 0 {
		t.Errorf("on disk: %q, remembered: %v", names(m.disk[theirs.Key]), m.memory.Holds)
	}
}

func TestWhatIsRevokedInKeptContentGoesAfterProof(t *testing.T) {
	m := newMachine(t, time.Hour)
	m.policy.Trust.Source = KubeAPIServerServingCAData
	s := bundle(ImageRegistryBundleData, "s", "c")
	m.pass(desired(ca("abc"), s)).pass(desired(ca("ab"), s)) // c is held
	d := desired(s).Carry(desired(ca("ab")), m.policy)
	d.Revoked = []pki.Fingerprint{fingerprint("a"), fingerprint("c")}
	m.pass(d).has("abc", "0s "+asking, "0s "+asking)
	m.ask = map[pki.Fingerprint]string{pki.SetDigest(m.plan.Question.Left): ""}
	m.pass(d).has("b")
}

// TestEachFieldWaitsForItsOwnSource: the ConfigMap may be away for good, and the ControllerConfig followed.
func TestEachFieldWaitsForItsOwnSource(t *testing.T) {
	for id, want := range map[Field][2]bool{RootCAData: {true, false}, KubeconfigCAData: {false, true}} {
		got := [2]bool{Desired{Behind: true}.behind(id), Desired{ConfigMapBehind: true}.behind(id)}
		if got != want {
			t.Errorf("%s waits for ControllerConfig and ConfigMap: %v, want %v", id, got, want)
		}
	}
}
