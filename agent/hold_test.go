// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

func TestAHoldOutlivesTheAgentAndEndsByItself(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.start()
	h.publish(kubelet(caA))
	if s := h.publish(kubelet(caB)); len(s.Held) != 1 || s.Held[0].Fingerprint == "" ||
		!s.Held[0].Until.Equal(h.clock.Now().Add(time.Hour)) || s.Files[0].State != "in place" ||
		s.Files[0].Certificates != 2 {
		t.Errorf("the status says %+v", s)
	}
	h.wantFile(kubeletCA, caB+caA)
	h.clock.Move(40 * time.Minute)
	h.kill()
	if s := h.start(); s.Files[0].State != "in place" {
		t.Errorf("after a restart the status says %+v", s)
	}
	defer h.kill()
	h.publish(kubelet(caB))
	h.wantFile(kubeletCA, caB+caA)
	h.move(19 * time.Minute)
	if s := h.wait(time.Minute); len(s.Held) != 0 {
		t.Errorf("still held: %+v", s.Held)
	}
	h.wantFile(kubeletCA, caB)
	if n := strings.Count(strings.Join(h.trail.Names(), " "), "held"); n != 1 {
		t.Errorf("%d records of the hold after the restart, want 1", n)
	}
}

// TestAHoldEndsOnlyWhileTheSourceIsFollowed: nobody can tell whether it has asked again for what it dropped.
func TestAHoldEndsOnlyWhileTheSourceIsFollowed(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.publish(kubelet(caB))
	h.source <- desired.Reading{State: "reconnecting"}
	h.awaitReconcile()
	if s := h.wait(2 * time.Hour); len(s.Held) != 1 || !strings.Contains(s.Held[0].Reason, "is read again") {
		t.Errorf("held are %+v", s.Held)
	}
	h.wantFile(kubeletCA, caB+caA)
	h.source <- desired.Reading{State: "following"}
	if s := h.awaitReconcile(); len(s.Held) != 0 {
		t.Errorf("still held: %+v", s.Held)
	}
	h.wantFile(kubeletCA, caB)
}

func TestWhatWasTakenAwayDoesNotComeBackAfterAKill(t *testing.T) {
	another := string(testpki.NewCA("another"))
	for _, how := range []string{"its hold ends", "it is revoked", "it is revoked as another one comes"} {
		h := newHost(t)
		h.policy.Trust.Hold = time.Hour
		h.start()
		both := kubelet(caA + caB)
		h.publish(both, registry("r", caA), registry("s", caA))
		h.publish(kubelet(caB), registry("s", caA))
		h.disk.Fail = func(operation, _ string) error {
			if operation == "rename" { // of the shrunken bundle; nothing is remembered from here on
				h.dir.Fail = func(operation, _ string) error {
					if operation == "read" || operation == "list" {
						return nil
					}
					return errDead
				}
			}
			return nil
		}
		revoke := plan.Desired{Revoked: []pki.Fingerprint{both.Certs[0].Fingerprint}}
		want := caB
		switch how {
		case "its hold ends":
			h.elapse(time.Hour)
		case "it is revoked":
			revoke.Entries = []plan.Entry{kubelet(caB), registry("s", caA)}
			h.ask(revoke)
		default:
			want = caB + another
			revoke.Entries = []plan.Entry{kubelet(want), registry("s", caA)}
			h.ask(revoke)
		}
		h.wantFile(kubeletCA, want)
		h.kill()
		h.disk.Fail, h.dir.Fail = noFailure, noFailure
		h.start() // and the API server does not answer
		h.wantFile(kubeletCA, want)
		h.kill()
	}
}

func TestWithoutMemoryNothingIsTakenAwayAndTheHoldIsLonger(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.start()
	h.publish(kubelet(caA), registry("r", caA), registry("s", caA))
	h.publish(kubelet(caB), registry("s", caA))
	h.clock.Move(59 * time.Minute)
	h.kill()
	if err := h.dir.Remove("state.json"); err != nil {
		t.Fatal(err)
	}
	h.start()
	defer h.kill()
	h.publish(kubelet(caB), registry("s", caA))
	h.elapse(59 * time.Minute)
	h.wantFile(kubeletCA, caB+caA)
	h.elapse(time.Minute)
	h.wantFile(kubeletCA, caB)
	h.wantFile(certsD+"r/ca.crt", caA) // nobody remembers that it was ours
}

func TestTheTrustSourceShrinksOnlyOnceTheServerWasVerifiedWithWhatIsLeft(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Source = plan.KubeAPIServerServingCAData
	h.trust.SetAnswer(func(subjects []string) (string, error) {
		if slices.Contains(subjects, "CN=a") {
			return "", nil
		}
		return "unknown authority", nil
	})
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.publish(kubelet(caB))
	if s := h.awaitReconcile(); len(s.Held) != 1 || !strings.HasSuffix(s.Held[0].Reason, "unknown authority") {
		t.Errorf("held is %+v", s.Held)
	}
	h.wantFile(kubeletCA, caB+caA)
	h.publish(kubelet(caB))
	if h.trust.Asked != 2 {
		t.Errorf("asked %d times before the resync", h.trust.Asked)
	}
	h.trust.SetAnswer(nil)
	h.wait(2 * time.Hour) // the resync, which asks again
	h.awaitReconcile()
	h.wantFile(kubeletCA, caB)
	if used := fmt.Sprint(h.trust.Used); used != "[[CN=a] [CN=b CN=a] [CN=b]]" {
		t.Errorf("the API server was to be verified with %s", used)
	}
}

func TestABundleThatDoesNotVerifyTheServerAnywayMayShrink(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Source = plan.KubeAPIServerServingCAData
	h.trust.SetAnswer(func([]string) (string, error) { return "unknown authority", nil })
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.publish(kubelet(caB))
	h.awaitReconcile()
	h.wantFile(kubeletCA, caB)
}

func TestWhileTheServerDoesNotAnswerTheTrustSourceStays(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Source = plan.KubeAPIServerServingCAData
	h.trust.SetAnswer(func([]string) (string, error) { return "", errors.New("connection refused") })
	h.start()
	defer h.kill()
	h.publish(kubelet(caA))
	h.publish(kubelet(caB))
	if s := h.awaitReconcile(); len(s.Held) != 1 || !strings.HasSuffix(s.Held[0].Reason, "connection refused") {
		t.Errorf("held is %+v", s.Held)
	}
	h.wantFile(kubeletCA, caB+caA)
}

func TestWhileItIsPausedTrustGrowsAndNothingElseHappens(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA), registry("r", caA), registry("s", caA))
	h.wait(2 * time.Second)
	h.settled()
	s := h.ask(plan.Desired{Entries: []plan.Entry{kubelet(caB), registry("s", caA)}, Paused: "freeze"})
	h.elapse(time.Hour)
	h.wantFile(kubeletCA, caB+caA)
	h.wantFile(certsD+"r/ca.crt", caA)
	h.wantJobs("reload reader.service")
	if s = h.last; s.Paused != "freeze" || len(s.Held) != 2 || s.Units[0].State != "paused" ||
		s.Units[0].Reason != "freeze" {
		t.Errorf("the status says %+v", s)
	}
	h.publish(kubelet(caB), registry("s", caA))
	h.wantFile(kubeletCA, caB)
	h.wantFile(certsD+"r/ca.crt", "")
	h.wait(2 * time.Second)
	h.settled()
	h.wantJobs("reload reader.service", "reload reader.service")
}

func TestTheSameCertificatesInAnotherOrderCauseNoAction(t *testing.T) {
	h := newHost(t)
	h.systemd.Start("reader.service")
	h.clock.Move(time.Minute)
	h.start()
	defer h.kill()
	h.publish(kubelet(caA + caB))
	h.wait(2 * time.Second)
	h.settled()
	if s := h.publish(kubelet(caB + caA)); s.Units[0].State != "up to date" {
		t.Errorf("the unit is %s", s.Units[0].State)
	}
	h.wantFile(kubeletCA, caB+caA)
	h.elapse(time.Minute)
	h.wantJobs("reload reader.service")
}

// TestTheFirstDayOfACluster replays the kubelet's client CAs as a new OpenShift cluster publishes
// them: those of the installer, which live for a day, then those of the cluster's own operators.
func TestTheFirstDayOfACluster(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold, h.policy.Files[0].OnChange = time.Hour, nil
	h.systemd.Start("reader.service")
	born := h.clock.Now()
	issue := func(at, life time.Duration) string {
		return string(testpki.NewFrom(x509.Certificate{NotBefore: born.Add(at), NotAfter: born.Add(at + life)},
			testpki.ECDSA).PEM())
	}
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	admin, toKubelet := issue(0, 10*year), issue(0, year)
	bootstrap, plane, csr := issue(0, 10*year), issue(0, day), issue(0, day)
	h.start()
	defer h.kill()

	h.publish(kubelet(admin + toKubelet + bootstrap + plane)) // from the bootstrap machine
	h.wantFile(kubeletCA, admin+toKubelet+bootstrap+plane)

	h.elapse(20 * time.Minute) // the cluster's own control plane takes over
	h.publish(kubelet(admin + csr + toKubelet + plane + bootstrap))
	h.wantFile(kubeletCA, admin+csr+toKubelet+plane+bootstrap)

	h.elapse(10 * time.Hour) // one new signer
	csr2 := issue(10*time.Hour, 30*day)
	h.publish(kubelet(admin + csr + csr2 + toKubelet + plane + bootstrap))
	h.wantFile(kubeletCA, admin+csr+csr2+toKubelet+plane+bootstrap)

	h.elapse(9 * time.Hour) // two more, a few hours before the old ones end
	plane2, csrSigner := issue(19*time.Hour, 60*day), issue(19*time.Hour, 60*day)
	h.publish(kubelet(admin + csr + csr2 + csrSigner + toKubelet + plane + plane2 + bootstrap))
	h.wantFile(kubeletCA, admin+csr+csr2+csrSigner+toKubelet+plane+plane2+bootstrap)

	h.elapse(4 * time.Hour) // the two of the installer are dropped before they end: they wait
	rest := admin + csr2 + csrSigner + toKubelet + plane2 + bootstrap
	if s := h.publish(kubelet(rest)); len(s.Held) != 2 {
		t.Errorf("held: %+v", s.Held)
	}
	h.wantFile(kubeletCA, rest+csr+plane)
	h.elapse(41 * time.Minute) // and go when they end, which is sooner than the hold
	h.publish(kubelet(rest))
	h.wantFile(kubeletCA, rest)

	h.elapse(time.Hour)
	h.wantJobs()
	if s := h.last; len(s.Held) != 0 || len(s.Refused) != 0 || s.Error != "" {
		t.Errorf("the day ends with %+v", s)
	}
}

func TestARevocationReachesTheDisk(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.start()
	defer h.kill()
	h.publish(kubelet(caA + caB))
	h.ask(plan.Desired{Entries: []plan.Entry{kubelet(caB)}, Revoked: []pki.Fingerprint{kubelet(caA).Certs[0].Fingerprint}})
	h.wantFile(kubeletCA, caB)
}

func TestWhatWasPublishedWhileTheWriterWasAwayWasNotMissing(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.start()
	defer h.kill()
	h.publish(kubelet(caA + caB))
	h.publish(kubelet(caB))
	h.elapse(30 * time.Minute)
	h.disk.Fail = func(string, string) error { return errors.New("no writer") }
	h.publish(kubelet(caA + caB))
	h.elapse(20 * time.Minute)
	h.publish(kubelet(caB))
	h.disk.Fail = noFailure
	h.elapse(15 * time.Minute)
	h.wantFile(kubeletCA, caB+caA)
	h.elapse(time.Hour)
	h.wantFile(kubeletCA, caB)
}

func TestWhatWasRevokedStaysAwayFromContentThatIsOnlyKept(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.start()
	defer func() { h.kill() }()
	s := registry("s", caA)
	h.publish(kubelet(caA+caB), s)
	h.publish(s) // the field is empty
	h.wantFile(kubeletCA, caA+caB)
	h.ask(plan.Desired{Entries: []plan.Entry{s}, Revoked: []pki.Fingerprint{kubelet(caA).Certs[0].Fingerprint}})
	h.wantFile(kubeletCA, caB)
	h.publish(s) // the annotation is tidied away
	h.wantFile(kubeletCA, caB)
	h.disk.Delete(kubeletCA)
	h.turn()
	h.wantFile(kubeletCA, caB)
	h.kill()
	h.start()
	h.publish(s)
	h.wantFile(kubeletCA, caB)
}

func TestWhatWasRevokedStaysAwayAlthoughAnotherFieldFails(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.start()
	defer h.kill()
	h.publish(kubelet(caA+caB), registry("s", caA))
	h.publish(registry("s", caA)) // the field is empty
	h.disk.Fail = func(op, path string) error {
		if op == "stage" && path == certsD+"s/ca.crt" {
			return errors.New("read-only file system")
		}
		return nil
	}
	h.ask(plan.Desired{Entries: []plan.Entry{registry("s", caB)},
		Revoked: []pki.Fingerprint{kubelet(caA).Certs[0].Fingerprint}})
	h.wait(2 * time.Second) // file by file
	h.wantFile(kubeletCA, caB)
	h.publish(registry("s", caB)) // the annotation is tidied away
	h.wait(4 * time.Second)
	h.wantFile(kubeletCA, caB)
}

// TestNothingIsCalledHeldWhileNothingIsDesired: nobody ends a hold then, and the status would name a time long past.
// Found by the simulator.
func TestNothingIsCalledHeldWhileNothingIsDesired(t *testing.T) {
	h := newHost(t)
	h.policy.Trust.Hold = time.Hour
	h.disk.Put(kubeletCA, caA)
	h.start()
	defer h.kill()
	if s := h.apply("1", kubelet(caB)); len(s.Held) != 1 {
		t.Fatalf("held: %+v", s.Held)
	}
	h.overrides.Set(state.Overrides{}, nil)
	if s := h.turn(); len(s.Held) != 0 {
		t.Errorf("held: %+v", s.Held)
	}
}
