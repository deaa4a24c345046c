// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/renew/issue"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/staticpods"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const (
	forEtcd = "apiserver-etcd-client"
	pki     = "etc/kubernetes/pki/"
)

func etcdCA(name string) *testpki.Authority {
	return testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(1000 * time.Hour)}, testpki.ECDSA)
}

func etcdClient(lived, left time.Duration) x509.Certificate {
	c := leaf(lived, left)
	c.Subject = pkix.Name{CommonName: "kube-apiserver-etcd-client", Organization: []string{"a"}}
	return c
}

// hosts are two: an API server whose etcd is on the other one, with the key of its CA.
func hosts(t *testing.T, mode pair.Mode, throughEtcd bool) (control, member *node) {
	t.Helper()
	ca := etcdCA("etcd-ca")
	control = bare(t, ca, "kube-apiserver", "--etcd-cafile=/"+pki+"etcd/ca.crt", "--etcd-certfile=/"+pki+forEtcd+".crt",
		"--etcd-keyfile=/"+pki+forEtcd+".key", "--etcd-servers=https://10.0.0.1:2379")
	control.Pair(pki+forEtcd, ca.Issue(etcdClient(50*time.Minute, 10*time.Minute)))
	member = bare(t, ca, "etcd", "--cert-file=/"+pki+"etcd/server.crt", "--key-file=/"+pki+"etcd/server.key",
		"--trusted-ca-file=/"+pki+"etcd/ca.crt")
	server := leaf(10*time.Minute, 50*time.Minute)
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	member.Pair(pki+"etcd/server", ca.Issue(server))
	member.Write(pki+"etcd/ca.key", string(ca.KeyPEM()))
	for _, n := range []*node{control, member} {
		n.throughEtcd = throughEtcd
		n.start(mode)
	}
	return control, member
}

// bare is a host with one static pod and the certificate of a CA.
func bare(t *testing.T, ca *testpki.Authority, argv ...string) *node {
	n := &node{T: t, Tree: staticpods.New(t), clock: time.Now()}
	n.CA = ca
	n.Kubelet(map[string]string{"a.yaml": staticpods.Manifest(argv...)})
	n.Runs(20, "/kubepods/burstable/pod1/2", argv...)
	n.Write(pki+"etcd/ca.crt", string(ca.PEM()))
	if err := os.Mkdir(filepath.Join(n.Root, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	return n
}

// read is a file of the host.
func (n *node) read(name string) []byte {
	n.Helper()
	text, err := os.ReadFile(filepath.Join(n.Root, name))
	if err != nil {
		n.Fatal(err)
	}
	return text
}

func (n *node) wants(uid uint32, q request) reply {
	n.Helper()
	r := n.asks(uid, q)
	if r.Error != nil {
		n.Fatal(r.Error)
	}
	return r
}

func TestAPairIsRenewedByTheHostThatHasTheCAsKey(t *testing.T) {
	control, member := hosts(t, pair.ModeRenew, true)
	before, key := control.sees(forEtcd), control.read(pki+forEtcd+".key")
	asked := control.wants(service, request{Request: control.about(forEtcd)}).Text
	control.start(pair.ModeRenew) // it asks for the same again
	if again := control.wants(service, request{Request: control.about(forEtcd)}).Text; !bytes.Equal(again, asked) {
		t.Error("a second request is another one")
	}
	made := member.wants(service, request{Issue: &Issue{Request: asked}}).Text
	r := control.wants(service, request{Install: &Install{*control.about(forEtcd), made}})
	if r.Facts.Leaf.Subject != before.Leaf.Subject || r.Facts.Leaf.SHA256 == before.Leaf.SHA256 || r.Facts.Problem != "" ||
		!r.Facts.Leaf.NotAfter.After(before.Leaf.NotAfter) || len(r.Facts.Chain) != 1 {
		t.Errorf("installed %+v", r.Facts)
	}
	if bytes.Equal(control.read(pki+forEtcd+".key"), key) {
		t.Error("the key is the old one")
	}
	control.wants(service, request{Keep: control.about(forEtcd)})
	if _, err := os.Stat(filepath.Join(control.Root, "state/requests", forEtcd+".json")); !os.IsNotExist(err) {
		t.Errorf("what was asked is still there: %v", err)
	}
	for _, want := range []string{`<5>signer requests: pair="apiserver-etcd-client" path="/etc/kubernetes/pki/` + forEtcd +
		`.crt" before=` + before.Leaf.SHA256, "<5>signer replaces: ", "<5>signer keeps: "} {
		if !strings.Contains(control.log.b.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, control.log.b.String())
		}
	}
	if want := `<5>signer issues: subject="CN=kube-apiserver-etcd-client,O=a" before=` + before.Leaf.SHA256 + " after=" +
		r.Facts.Leaf.SHA256; !strings.Contains(member.log.b.String(), want) {
		t.Errorf("the log has no %q:\n%s", want, member.log.b.String())
	}
	if strings.Contains(member.log.b.String(), "replaces") {
		t.Error("the host that answers has changed something")
	}
}

func TestAPairFromAnotherHostIsRestoredByteForByte(t *testing.T) {
	control, member := hosts(t, pair.ModeRenew, true)
	before := append(control.read(pki+forEtcd+".crt"), control.read(pki+forEtcd+".key")...)
	asked := control.wants(service, request{Request: control.about(forEtcd)}).Text
	made := member.wants(service, request{Issue: &Issue{Request: asked}}).Text
	control.wants(service, request{Install: &Install{*control.about(forEtcd), made}})
	control.wants(person, request{Restore: control.forced(forEtcd)})
	if after := append(control.read(pki+forEtcd+".crt"), control.read(pki+forEtcd+".key")...); !bytes.Equal(after, before) {
		t.Error("the pair is not what it was")
	}
	if r := control.asks(service, request{Install: &Install{*control.about(forEtcd), made}}); r.Error == nil ||
		r.Error.Reason != Refused {
		t.Errorf("installed a second time: %v", r.Error)
	}
	if again := control.wants(service, request{Request: control.about(forEtcd)}).Text; bytes.Equal(again, asked) {
		t.Error("the key that did not work is asked for again")
	}
}

func TestWhatIsAskedForIsForOneCertificate(t *testing.T) {
	control, member := hosts(t, pair.ModeRenew, true)
	asked := control.wants(service, request{Request: control.about(forEtcd)}).Text
	made := member.wants(service, request{Issue: &Issue{Request: asked}}).Text
	old := testpki.Pair{Cert: control.read(pki + forEtcd + ".crt"), Key: control.read(pki + forEtcd + ".key")}
	control.Pair(pki+forEtcd, control.CA.Issue(etcdClient(51*time.Minute, 9*time.Minute))) // as somebody else did
	r := control.asks(service, request{Install: &Install{*control.about(forEtcd), made}})
	if r.Error == nil || r.Error.Reason != Refused || !strings.Contains(r.Error.Detail, "nobody was asked") {
		t.Errorf("installed for another certificate: %v", r.Error)
	}
	if again := control.wants(service, request{Request: control.about(forEtcd)}).Text; bytes.Equal(again, asked) {
		t.Error("for another certificate it asks with the same request")
	}
	control.Pair(pki+forEtcd, old)
	if r := control.asks(service, request{Install: &Install{*control.about(forEtcd), made}}); r.Error == nil {
		t.Error("installed with a key that was thrown away")
	}
}

func TestTheServiceInstallsNoMoreThanAHostNeeds(t *testing.T) {
	control, member := hosts(t, pair.ModeRenew, true)
	asked := control.wants(service, request{Request: control.about(forEtcd)}).Text
	made := member.wants(service, request{Issue: &Issue{Request: asked}}).Text
	control.handler.renewals.Burst = 0
	q := request{Install: &Install{*control.about(forEtcd), made}}
	if r := control.asks(service, q); r.Error == nil || r.Error.Reason != Failed {
		t.Errorf("installed: %v", r.Error)
	}
	control.wants(person, q)
}

func TestAfterItsEndOnlyRootHasAPairRenewedElsewhere(t *testing.T) {
	control, member := hosts(t, pair.ModeRenew, true)
	after := control.sees(forEtcd).Leaf.NotAfter.Add(time.Hour)
	control.clock, member.clock = after, after
	asked := control.wants(service, request{Request: control.about(forEtcd)}).Text
	if r := member.asks(service, request{Issue: &Issue{Request: asked}}); r.Error == nil || !strings.Contains(r.Error.Detail,
		"has ended") {
		t.Errorf("issued %v", r.Error)
	}
	if r := member.asks(person, request{Issue: &Issue{Request: asked}}); r.Error == nil {
		t.Error("issued for root, who did not insist")
	}
	made := member.wants(person, request{Issue: &Issue{Request: asked, Force: true}}).Text
	control.wants(person, request{Install: &Install{*control.about(forEtcd), made}})
}

func TestWhoMayNotAskOrAnswerIsRefused(t *testing.T) {
	ask := func(control, _ *node, uid uint32, _, _ []byte) reply {
		return control.asks(uid, request{Request: control.about(forEtcd)})
	}
	answer := func(_, member *node, uid uint32, asked, _ []byte) reply {
		return member.asks(uid, request{Issue: &Issue{Request: asked}})
	}
	install := func(control, _ *node, uid uint32, _, made []byte) reply {
		return control.asks(uid, request{Install: &Install{*control.about(forEtcd), made}})
	}
	for _, do := range []func(control, member *node, uid uint32, asked, made []byte) reply{ask, answer, install} {
		control, member := hosts(t, pair.ModeManual, false)
		asked := control.wants(person, request{Request: control.about(forEtcd)}).Text
		made := member.wants(person, request{Issue: &Issue{Request: asked}}).Text
		for _, c := range []struct {
			mode pair.Mode
			on   bool
			uid  uint32
		}{{pair.ModeReport, true, person}, {pair.ModeReport, true, service}, {pair.ModeManual, true, service},
			{pair.ModeRenew, false, service}} {
			for _, n := range []*node{control, member} {
				n.throughEtcd = c.on
				n.start(c.mode)
			}
			before := control.read(pki + forEtcd + ".crt")
			if r := do(control, member, c.uid, asked, made); r.Error == nil || r.Error.Reason != Refused || r.Text != nil {
				t.Errorf("mode %s, throughEtcd %t, uid %d: %v", c.mode, c.on, c.uid, r.Error)
			}
			if !bytes.Equal(control.read(pki+forEtcd+".crt"), before) {
				t.Fatal("something was changed")
			}
		}
	}
}

// made is a request for a leaf by somebody who has its key.
func made(t *testing.T, p testpki.Pair) []byte {
	t.Helper()
	r, _, err := issue.MakeRequest(issue.Pair{Certificate: p.Cert, Key: secret.New(p.Key)}, false, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return r.Text()
}

func TestOnlyWhatTheCAOfThisHostsEtcdSignedIsAnswered(t *testing.T) {
	due := func(change func(*x509.Certificate)) x509.Certificate {
		c := etcdClient(50*time.Minute, 10*time.Minute)
		change(&c)
		return c
	}
	same := func(*x509.Certificate) {}
	control, member := hosts(t, pair.ModeRenew, true)
	cluster := etcdCA("kubernetes")
	member.Write(pki+"ca.crt", string(cluster.PEM()))
	member.Write(pki+"ca.key", string(cluster.KeyPEM()))
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"of the cluster's CA":      {made(t, cluster.Issue(due(same))), "was not signed by the CA"},
		"of a CA of the same name": {made(t, etcdCA("etcd-ca").Issue(due(same))), "was not signed by the CA"},
		"not due":                  {made(t, member.CA.Issue(etcdClient(10*time.Minute, 50*time.Minute))), "is not due"},
		"a server's": {made(t, member.CA.Issue(due(func(c *x509.Certificate) {
			c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}))), "not that of a client only"},
		"no request": {control.CA.PEM(), "cannot be read"},
		"nothing":    {nil, "cannot be read"},
	} {
		r := member.asks(service, request{Issue: &Issue{Request: c.text}})
		if r.Error == nil || r.Error.Reason != Refused || !strings.Contains(r.Error.Detail, c.want) || r.Text != nil {
			t.Errorf("%s: %v", name, r.Error)
		}
	}
	if r := member.asks(service, request{Issue: &Issue{Request: made(t, member.CA.Issue(due(same))), Force: true}}); r.Error == nil {
		t.Error("the service insists")
	}
	if r := control.asks(service, request{Issue: &Issue{Request: made(t, member.CA.Issue(due(same)))}}); r.Error == nil ||
		!strings.Contains(r.Error.Detail, "no member of etcd") {
		t.Errorf("a host without etcd: %v", r.Error)
	}
	if strings.Contains(member.log.b.String(), "issues") {
		t.Errorf("something was issued:\n%s", member.log.b.String())
	}
}

func TestTheServiceAnswersNoMoreThanAClusterNeeds(t *testing.T) {
	control, member := hosts(t, pair.ModeRenew, true)
	q := request{Issue: &Issue{Request: control.wants(service, request{Request: control.about(forEtcd)}).Text}}
	for range 40 {
		member.wants(service, q)
	}
	if r := member.asks(service, q); r.Error == nil || r.Error.Reason != Failed {
		t.Errorf("the next one: %v", r.Error)
	}
	member.wants(person, q)
}

func TestOnlyThePairOfAnEtcdElsewhereIsAskedFor(t *testing.T) {
	n := newNode(t, pair.ModeManual)
	for _, name := range []string{server, client} {
		if r := n.asks(person, request{Request: n.forced(name)}); r.Error == nil || !strings.Contains(r.Error.Detail,
			"not for another host") {
			t.Errorf("%s: %v", name, r.Error)
		}
	}
	control, _ := hosts(t, pair.ModeRenew, true)
	control.Pair(pki+forEtcd, control.CA.Issue(etcdClient(10*time.Minute, 50*time.Minute)))
	if r := control.asks(service, request{Request: control.about(forEtcd)}); r.Error == nil || !strings.Contains(r.Error.Detail,
		"is not due") {
		t.Errorf("not due: %v", r.Error)
	}
	control.wants(person, request{Request: control.forced(forEtcd)})
}

func TestAForgedAnswerChangesNothing(t *testing.T) {
	control, member := hosts(t, pair.ModeRenew, true)
	q := control.about(forEtcd)
	asked := control.wants(service, request{Request: q}).Text
	good := member.wants(service, request{Issue: &Issue{Request: asked}}).Text
	own := etcdCA("etcd-ca").Issue(etcdClient(0, time.Hour))
	for name, text := range map[string][]byte{"of another CA": own.Cert, "the old one": control.read(pki + forEtcd + ".crt"),
		"with the key of somebody": control.CA.Issue(etcdClient(0, time.Hour)).Cert, "nothing": nil, "two": append(good, good...)} {
		before := append(control.read(pki+forEtcd+".crt"), control.read(pki+forEtcd+".key")...)
		r := control.asks(service, request{Install: &Install{*q, text}})
		after := append(control.read(pki+forEtcd+".crt"), control.read(pki+forEtcd+".key")...)
		if r.Error == nil || r.Error.Reason != Refused || !bytes.Equal(before, after) {
			t.Errorf("%s: %v", name, r.Error)
		}
	}
	control.wants(service, request{Install: &Install{*q, good}})
}

func TestNoReplyToARequestHoldsAByteOfAKey(t *testing.T) {
	control, member := hosts(t, pair.ModeRenew, true)
	asked := control.wants(service, request{Request: control.about(forEtcd)})
	made := member.wants(service, request{Issue: &Issue{Request: asked.Text}})
	var kept requested
	if err := json.Unmarshal(control.read("state/requests/"+forEtcd+".json"), &kept); err != nil {
		t.Fatal(err)
	}
	installed := control.wants(service, request{Install: &Install{*control.about(forEtcd), made.Text}})
	said := string(asked.Text) + string(made.Text) + control.log.b.String() + member.log.b.String()
	text, err := json.Marshal([]reply{asked, made, installed})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range [][]byte{kept.Key, control.CA.KeyPEM(), control.read(pki + forEtcd + ".key")} {
		block, _ := pem.Decode(key)
		line := strings.Split(string(key), "\n")[1]
		if strings.Contains(said+string(text), line) || strings.Contains(said, string(block.Bytes[:40])) {
			t.Error("a part of a key is in what was said")
		}
	}
	if fi, err := os.Stat(filepath.Join(control.Root, "state/requests")); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi, err)
	}
}
