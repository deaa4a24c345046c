// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/node-cert-agent/node-cert-agent/cluster/clusterapi/etcdclient"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const day = 24 * time.Hour

var etcd = testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "etcd"}, IsCA: true,
	BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(3650 * day)}, testpki.ECDSA)

// endsIn is the Secret with a pair of a year that has this long to go.
func endsIn(left time.Duration) *corev1.Secret {
	p := etcd.Issue(x509.Certificate{Subject: pkix.Name{CommonName: "c1-kube-apiserver-etcd-client",
		Organization: []string{"system:masters"}}, NotBefore: time.Now().Add(left - 365*day), NotAfter: time.Now().Add(left)})
	return stored("c1-"+etcdClient, map[string][]byte{"tls.crt": p.Cert, "tls.key": p.Key, "other": []byte("stays")})
}

func ca(purpose string) *corev1.Secret {
	return stored("c1-"+purpose, map[string][]byte{"tls.crt": etcd.PEM(), "tls.key": etcd.KeyPEM()})
}

func (b *bench) pair() *corev1.Secret {
	b.t.Helper()
	var s corev1.Secret
	if err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "ns", Name: "c1-" + etcdClient}, &s); err != nil {
		b.t.Fatal(err)
	}
	return &s
}

func TestThePairForEtcdIsRenewedBeforeItsEnd(t *testing.T) {
	for _, purpose := range []string{managedEtcdCA, etcdCA} {
		old := endsIn(100 * day)
		b := newBench(t, cluster(), old.DeepCopy(), ca(purpose))
		if err := b.reconcile(); err != nil || !strings.HasPrefix(b.told(), renewed) {
			t.Fatalf("%s: %v", purpose, err)
		}
		s := b.pair()
		leaf := etcdclient.Leaf(s.Data["tls.crt"])
		if leaf.NotAfter.Before(time.Now().Add(364*day)) || leaf.CheckSignatureFrom(etcd.Cert) != nil ||
			bytes.Equal(s.Data["tls.key"], old.Data["tls.key"]) || string(s.Data["other"]) != "stays" {
			t.Errorf("%s: the pair ends at %v", purpose, leaf.NotAfter)
		}
		if err := b.reconcile(); err != nil || b.told() != "" || b.pair().ResourceVersion != s.ResourceVersion {
			t.Errorf("it is renewed again: %v", err)
		}
	}
}

func TestAPairThatIsNotDueIsLeft(t *testing.T) {
	theirs := endsIn(day)
	theirs.Annotations = map[string]string{ofCertManager: "x"}
	for sentence, s := range map[string]*corev1.Secret{"young": endsIn(130 * day), "renewed by cert-manager": theirs} {
		b := newBench(t, cluster(), s.DeepCopy(), ca(managedEtcdCA))
		if err := b.reconcile(); err != nil || b.told() != "" || !bytes.Equal(b.pair().Data["tls.crt"], s.Data["tls.crt"]) {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}

func TestACAThatCannotSignIsSaid(t *testing.T) {
	keyless := ca(etcdCA)
	delete(keyless.Data, "tls.key")
	other := testpki.New("etcd", testpki.ECDSA)
	wrong := stored("c1-"+etcdCA, map[string][]byte{"tls.crt": other.PEM(), "tls.key": other.KeyPEM()})
	for want, s := range map[string]*corev1.Secret{etcdclient.NoKey: keyless, etcdclient.WrongCA: wrong} {
		old := endsIn(day)
		b := newBench(t, cluster(), old.DeepCopy(), s)
		if err := b.reconcile(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		if got := b.told(); got != want || !bytes.Equal(b.pair().Data["tls.crt"], old.Data["tls.crt"]) {
			t.Errorf("told is %q, want %q", got, want)
		}
	}
}

func TestWhatSomebodyWroteMeanwhileStays(t *testing.T) {
	b := newBench(t, cluster(), endsIn(day), ca(managedEtcdCA))
	b.denied = apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "x", nil)
	if err := b.reconcile(); err == nil || b.told() != "" {
		t.Errorf("a conflict: %v", err)
	}
	b.denied = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", nil)
	if err := b.reconcile(); err == nil || b.told() != notWritten {
		t.Errorf("a refusal: %v", err)
	}
}

// TestNoMachineStatesTheEndOfAPairThatItsSuccessorWouldGet: it would be replaced without end.
func TestNoMachineStatesTheEndOfAPairThatItsSuccessorWouldGet(t *testing.T) {
	s := endsIn(130 * day)
	b := newBench(t, cluster(), machine("m1"), s.DeepCopy())
	end := etcdclient.Leaf(s.Data["tls.crt"]).NotAfter
	b.reports("m1", end)
	b.expect("m1", "", "")
	next := b.pair()
	next.Data = endsIn(300 * day).Data
	if err := b.client.Update(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	b.expect("m1", end.UTC().Format(time.RFC3339), "ExpiryStated")
}

func TestNoKeyIsTold(t *testing.T) {
	b := newBench(t, cluster(), endsIn(day), ca(managedEtcdCA))
	if err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	e := <-b.events
	for _, s := range []*corev1.Secret{b.pair(), ca(managedEtcdCA)} {
		if strings.Contains(e, string(s.Data["tls.key"])) || strings.Contains(e, "PRIVATE") {
			t.Errorf("told is %s", e)
		}
	}
	if !strings.Contains(e, "no machine was replaced") {
		t.Errorf("told is %s", e)
	}
}
