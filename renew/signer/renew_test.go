// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/staticpods"
)

func TestAPairIsRenewedAndKept(t *testing.T) {
	n := newNode(t, pair.ModeManual)
	before := n.sees(server)
	r := n.asks(person, request{Renew: n.about(server)})
	if r.Error != nil || r.Facts.Leaf.Subject != before.Leaf.Subject || r.Facts.Leaf.SHA256 == before.Leaf.SHA256 ||
		r.Facts.Problem != "" || !r.Facts.Leaf.NotAfter.After(before.Leaf.NotAfter) || len(r.Facts.Chain) != 1 {
		t.Fatalf("renewed: %+v, %v", r.Facts, r.Error)
	}
	if seen := n.asks(service, request{Inspect: true}).Inspection; seen.Waiting != server || len(seen.Pairs[1].Chain) != 1 {
		t.Errorf("waiting %q, %+v", seen.Waiting, seen.Pairs)
	}
	if r := n.asks(person, request{Renew: n.forced(client)}); r.Error == nil || !strings.Contains(r.Error.Detail, "not proven yet") {
		t.Errorf("a second one: %v", r.Error)
	}
	if r := n.asks(service, request{Keep: n.about(server)}); r.Error != nil || r.Facts.Leaf.SHA256 == before.Leaf.SHA256 {
		t.Errorf("kept: %+v, %v", r.Facts, r.Error)
	}
	if r := n.asks(person, request{Renew: n.about(server)}); r.Error == nil || r.Error.Reason != Refused {
		t.Errorf("a second time: %v", r.Error)
	}
	for _, want := range []string{`<5>signer replaces: pair="apiserver" path="/etc/kubernetes/pki/apiserver.crt" before=` +
		before.Leaf.SHA256, "<5>signer keeps: ", " uid=7 "} {
		if !strings.Contains(n.log.b.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, n.log.b.String())
		}
	}
}

func TestAPairIsRestoredByteForByte(t *testing.T) {
	for _, restart := range []bool{false, true} {
		n := newNode(t, pair.ModeManual)
		before := n.files()
		if r := n.asks(person, request{Renew: n.forced(client)}); r.Error != nil {
			t.Fatal(r.Error)
		}
		if restart {
			n.start(pair.ModeManual)
		}
		if r := n.asks(service, request{Restore: n.about(client)}); r.Error != nil || !bytes.Equal(n.files(), before) {
			t.Errorf("after a restart %t: %v", restart, r.Error)
		}
	}
}

func TestWhatIsDueIsWorthRestoring(t *testing.T) {
	n := newNode(t, pair.ModeRenew)
	n.Pair("etc/kubernetes/pki/"+client, n.CA.Issue(leaf(50*time.Minute, 15*time.Minute)))
	if r := n.asks(service, request{Renew: n.about(client)}); r.Error != nil {
		t.Fatal(r.Error)
	}
	if r := n.asks(service, request{Restore: n.about(client)}); r.Error != nil {
		t.Errorf("not restored: %v", r.Error)
	}
}

func TestWhatHasEndedIsNotRestored(t *testing.T) {
	n := newNode(t, pair.ModeManual)
	n.clock = n.sees(server).Leaf.NotAfter.Add(time.Minute)
	if r := n.asks(person, request{Renew: n.about(server)}); r.Error != nil {
		t.Fatal(r.Error)
	}
	if r := n.asks(service, request{Restore: n.about(server)}); r.Error == nil || r.Error.Reason != Refused ||
		!strings.Contains(r.Error.Detail, "no better") {
		t.Errorf("restored: %v", r.Error)
	}
	if r := n.asks(service, request{Restore: n.forced(server)}); r.Error == nil || r.Error.Reason != Refused {
		t.Errorf("the service insists: %v", r.Error)
	}
	if r := n.asks(person, request{Restore: n.forced(server)}); r.Error != nil {
		t.Errorf("root insists: %v", r.Error)
	}
}

func TestWhatSomebodyElseChangedIsLeftToRoot(t *testing.T) {
	n := newNode(t, pair.ModeManual)
	if r := n.asks(person, request{Renew: n.about(server)}); r.Error != nil {
		t.Fatal(r.Error)
	}
	n.Pair("etc/kubernetes/pki/"+server, n.CA.Issue(leaf(0, 90*time.Minute)))
	theirs := n.files()
	n.start(pair.ModeManual)
	if seen := n.asks(service, request{Inspect: true}).Inspection; seen.Waiting != server ||
		!strings.Contains(seen.Blocked, "neither old nor new") {
		t.Errorf("waiting %q, blocked %q", seen.Waiting, seen.Blocked)
	}
	for _, q := range []request{{Keep: n.about(server)}, {Restore: n.about(server)}} {
		if r := n.asks(person, q); r.Error == nil {
			t.Errorf("%+v was done", q)
		}
	}
	if r := n.asks(service, request{Abandon: server}); r.Error == nil || r.Error.Reason != Refused {
		t.Errorf("abandoned by the service: %v", r.Error)
	}
	if r := n.asks(person, request{Abandon: server}); r.Error != nil || !bytes.Equal(n.files(), theirs) {
		t.Errorf("abandoned: %v", r.Error)
	}
	if seen := n.asks(service, request{Inspect: true}).Inspection; seen.Waiting != "" || seen.Blocked != "" {
		t.Errorf("waiting %q, blocked %q", seen.Waiting, seen.Blocked)
	}
}

func TestWhatIsNotAllowedIsRefusedAndChangesNothing(t *testing.T) {
	message := append(append([]byte{}, clientContext...), make([]byte, 32)...)
	for name, c := range map[string]struct {
		uid  uint32
		mode pair.Mode
		ask  func(n *node) request
	}{
		"a renewal by the service": {service, pair.ModeManual, func(n *node) request { return request{Renew: n.about(server)} }},
		"a forced one":             {service, pair.ModeManual, func(n *node) request { return request{Renew: n.forced(server)} }},
		"what is not due":          {person, pair.ModeManual, func(n *node) request { return request{Renew: n.about(client)} }},
		"a host that only reports": {person, pair.ModeReport, func(n *node) request { return request{Renew: n.forced(server)} }},
		"another leaf": {person, pair.ModeManual, func(n *node) request {
			return request{Renew: &Change{Pair: server, Leaf: n.sees(client).Leaf.SHA256}}
		}},
		"no such pair": {person, pair.ModeManual, func(n *node) request { return request{Renew: &Change{Pair: "../ca", Force: true}} }},
		"a wrong CA key": {person, pair.ModeManual, func(n *node) request {
			n.Write("etc/kubernetes/pki/ca.key", "no key")
			return request{Renew: n.forced(server)}
		}},
		"what is not due, unattended": {service, pair.ModeRenew, func(n *node) request { return request{Renew: n.about(client)} }},
		"to insist, unattended":       {service, pair.ModeRenew, func(n *node) request { return request{Renew: n.forced(client)} }},
		"a restore of what stands":    {person, pair.ModeManual, func(n *node) request { return request{Restore: n.forced(server)} }},
		"a forced restore":            {service, pair.ModeManual, func(n *node) request { return request{Restore: n.forced(server)} }},
		"to keep what stands":         {service, pair.ModeManual, func(n *node) request { return request{Keep: n.about(server)} }},
		"to abandon what stands":      {person, pair.ModeManual, func(n *node) request { return request{Abandon: server} }},
		"a signature with what stands": {person, pair.ModeManual, func(*node) request {
			return request{Sign: &Handshake{Pair: client, Message: message, Hash: uint(crypto.SHA256)}}
		}},
		"two things": {person, pair.ModeManual, func(n *node) request {
			return request{Inspect: true, Renew: n.forced(server)}
		}},
	} {
		n := newNode(t, c.mode)
		q := c.ask(n)
		before := n.files()
		if r := n.asks(c.uid, q); r.Error == nil || r.Error.Reason != Refused || r.Facts != nil || r.Signature != nil {
			t.Errorf("%s: %+v, %v", name, r, r.Error)
		}
		if !bytes.Equal(n.files(), before) || strings.Contains(n.log.b.String(), "replaces") {
			t.Errorf("%s: something was changed", name)
		}
	}
}

func TestACAThatOthersCanWriteSignsNothing(t *testing.T) {
	for _, name := range []string{"ca.crt", "ca.key"} {
		n := newNode(t, pair.ModeManual)
		if err := os.Chmod(filepath.Join(n.Root, "etc/kubernetes/pki", name), 0o666); err != nil {
			t.Fatal(err)
		}
		if r := n.asks(person, request{Renew: n.forced(server)}); r.Error == nil || !strings.Contains(r.Error.Detail, name) {
			t.Errorf("%s: %v", name, r.Error)
		}
	}
}

func TestOnlyTheEndOfAClientsHandshakeIsSigned(t *testing.T) {
	n := newNode(t, pair.ModeManual)
	if r := n.asks(person, request{Renew: n.forced(client)}); r.Error != nil {
		t.Fatal(r.Error)
	}
	digest := sha256.Sum256([]byte("a certificate for everybody"))
	prefix := string(clientContext)
	for name, message := range map[string]string{
		"a digest": string(digest[:]), "no digest": prefix, "a long one": prefix + strings.Repeat("x", 64),
		"a server's": strings.Replace(prefix, "client", "server", 1) + string(digest[:]), "nothing": "",
	} {
		for _, uid := range []uint32{person, service} {
			q := Handshake{Pair: client, Message: []byte(message), Hash: uint(crypto.SHA256)}
			if r := n.asks(uid, request{Sign: &q}); r.Error == nil || r.Error.Reason != Refused {
				t.Errorf("%s was signed for %d: %v", name, uid, r.Error)
			}
		}
	}
	good := Handshake{Pair: client, Message: []byte(prefix + string(digest[:])), Hash: uint(crypto.SHA256)}
	signed := 0
	for range 200 {
		if r := n.asks(service, request{Sign: &good}); r.Error == nil {
			signed++
		}
	}
	if signed != 100 {
		t.Errorf("%d of 200 handshakes were signed", signed)
	}
}

func TestAServerAcceptsAHandshakeThatTheSignerSigned(t *testing.T) {
	n := newNode(t, pair.ModeManual)
	r := n.asks(person, request{Renew: n.forced(client)})
	if r.Error != nil {
		t.Fatal(r.Error)
	}
	leaf, err := x509.ParseCertificate(r.Facts.Chain[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(n.CA.Cert)
	ours, theirs := net.Pipe()
	accepted := make(chan error, 1)
	go func() {
		s := tls.Server(theirs, &tls.Config{Certificates: []tls.Certificate{n.CA.Client("s").TLS()}, ClientCAs: roots,
			ClientAuth: tls.RequireAndVerifyClientCert})
		_, err := s.Read(make([]byte, 1))
		accepted <- err
	}()
	key := &Key{pair: client, public: leaf.PublicKey, ctx: t.Context(), ask: func(_ context.Context, q request) (reply, error) {
		r := n.asks(service, q)
		if r.Error != nil {
			return r, r.Error
		}
		return r, nil
	}}
	c := tls.Client(ours, &tls.Config{InsecureSkipVerify: true, //nolint:gosec // it is the client that is tested
		Certificates: []tls.Certificate{{Certificate: r.Facts.Chain, PrivateKey: key}}})
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Errorf("the server says %v", err)
	}
	if _, err := key.Sign(nil, make([]byte, 32), crypto.SHA256); err == nil {
		t.Error("a digest was signed")
	}
}

func TestWhoUsesAnOldPairIsEndedOnce(t *testing.T) {
	for origin, want := range map[string]string{"static pod": "", "unit": "systemctl try-restart kube-scheduler.service"} {
		n := newNode(t, pair.ModeManual)
		var ended []int
		n.Terminate = func(p *os.Process) error { ended = append(ended, p.Pid); return nil }
		argv := []string{"kube-scheduler", "--kubeconfig=/etc/kubernetes/scheduler.conf"}
		p := n.CA.Issue(leaf(time.Hour, time.Hour))
		b64 := base64.StdEncoding.EncodeToString
		n.Write("etc/kubernetes/scheduler.conf", "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"+
			"clusters: [{name: c, cluster: {server: 'https://a.test:6443'}}]\nusers: [{name: u, user: {client-certificate-data: "+
			b64(p.Cert)+", client-key-data: "+b64(p.Key)+"}}]\n")
		// The process that is ended is this one, as far as the kernel knows.
		if origin == "unit" {
			n.Write("etc/systemd/system/kube-scheduler.service", "[Service]\nExecStart=/usr/bin/"+strings.Join(argv, " ")+"\n")
			n.Runs(os.Getpid(), "/system.slice/kube-scheduler.service", append([]string{"/usr/bin/kube-scheduler"}, argv[1:]...)...)
		} else {
			n.Write("etc/kubernetes/manifests/kube-scheduler.yaml", staticpods.Manifest(argv...))
			n.Runs(os.Getpid(), "/kubepods/burstable/pod2/3", argv...)
		}
		f := n.sees("scheduler.conf")
		if len(f.Users) != 1 || !f.Users[0].Started.Before(f.Changed) {
			t.Fatalf("%s: %+v", origin, f)
		}
		if r := n.asks(service, request{Restart: n.about("scheduler.conf")}); r.Error == nil || len(ended) > 0 {
			t.Errorf("%s: ended for the service", origin)
		}
		r := n.asks(person, request{Restart: n.about("scheduler.conf")})
		if want != "" && (r.Error == nil || !strings.Contains(r.Error.Detail, want) || len(ended) > 0) {
			t.Errorf("%s: %v, ended %d", origin, r.Error, ended)
		} else if want == "" && (r.Error != nil || len(ended) != 1 || ended[0] != os.Getpid()) {
			t.Errorf("%s: %v, ended %d", origin, r.Error, ended)
		}
		if r := n.asks(person, request{Restart: n.about(server)}); r.Error == nil || r.Error.Reason != Refused {
			t.Errorf("who reads a pair anew was ended: %v", r.Error)
		}
		ended = nil
		if r := n.asks(person, request{Renew: n.forced("scheduler.conf")}); r.Error != nil {
			t.Fatal(r.Error)
		}
		if r := n.asks(person, request{Restart: n.about("scheduler.conf")}); r.Error == nil || r.Error.Reason != Refused {
			t.Errorf("%s: ended for a pair that waits for proof: %v", origin, r.Error)
		}
		if r := n.asks(person, request{Keep: n.about("scheduler.conf")}); r.Error != nil {
			t.Fatal(r.Error)
		}
		n.Write(fmt.Sprintf("proc/%d/stat", os.Getpid()), fmt.Sprintf("1 (a) S 1%s 4200000000 0\n", strings.Repeat(" 0", 17)))
		if r := n.asks(person, request{Restart: n.about("scheduler.conf")}); r.Error == nil || r.Error.Reason != Refused {
			t.Errorf("%s: who started later was ended: %v", origin, r.Error)
		}
		if len(ended) > 0 {
			t.Errorf("%s: ended %d", origin, ended)
		}
	}
}

func TestTheServiceRenewsWhatIsDueButNotWithoutEnd(t *testing.T) {
	n := newNode(t, pair.ModeRenew)
	n.Pair("etc/kubernetes/pki/"+server, n.CA.Issue(leaf(200*time.Minute, 90*time.Minute))) // due, and worth restoring
	renewed := 0
	for range 60 {
		r := n.asks(service, request{Renew: n.about(server)})
		if r.Error != nil {
			continue
		}
		renewed++
		if r := n.asks(service, request{Restore: n.about(server)}); r.Error != nil {
			t.Fatal(r.Error)
		}
	}
	if renewed != 40 {
		t.Errorf("it was renewed %d times in 60", renewed)
	}
}

func TestTheServiceSpeaksToEtcdWhereItRenewsByItself(t *testing.T) {
	const pki = "etc/kubernetes/pki/etcd/"
	good := Handshake{Pair: "etcd-healthcheck-client", Hash: uint(crypto.SHA256), Message: append(append([]byte{},
		clientContext...), make([]byte, 32)...)}
	for mode, want := range map[pair.Mode]bool{pair.ModeRenew: true, pair.ModeManual: false, pair.ModeReport: false} {
		n := newNode(t, mode)
		argv := []string{"etcd", "--cert-file=/" + pki + "server.crt", "--key-file=/" + pki + "server.key",
			"--trusted-ca-file=/" + pki + "ca.crt", "--listen-client-urls=https://10.0.0.1:2379"}
		n.Write("etc/kubernetes/manifests/etcd.yaml", staticpods.Manifest(argv...))
		n.Runs(30, "/kubepods/burstable/pod2/3", argv...)
		n.Pair(pki+"server", n.CA.Issue(leaf(0, time.Hour)))
		n.Pair(pki+"healthcheck-client", n.CA.Issue(leaf(0, time.Hour)))
		n.Write(pki+"ca.crt", string(n.CA.PEM()))
		e := n.asks(service, request{Inspect: true}).Inspection.Etcd
		if want != (e != nil) || e != nil && (e.Pair != good.Pair || e.Elsewhere || len(e.Chain) != 1 || len(e.Authorities) != 1 ||
			len(e.Addresses) != 1 || e.Addresses[0] != "10.0.0.1:2379") {
			t.Errorf("%s: etcd is asked so: %+v", mode, e)
		}
		for name, allowed := range map[string]bool{good.Pair: want, client: false, "etcd-server": false} {
			q := good
			q.Pair = name
			if r := n.asks(service, request{Sign: &q}); allowed != (r.Error == nil) {
				t.Errorf("%s: a handshake with %s: %v", mode, name, r.Error)
			}
		}
	}
}

// FuzzWhatAProcessThatWasTakenOverAsks has the service ask for anything, while a pair waits. No reply holds a byte of a
// key, and no pair changes but the one that waits, which is what it was before or what it became.
func FuzzWhatAProcessThatWasTakenOverAsks(f *testing.F) {
	for _, q := range []request{{Inspect: true}, {Renew: &Change{Pair: server, Force: true}}, {Abandon: client},
		{Keep: &Change{Pair: client}}, {Sign: &Handshake{Pair: client, Message: clientContext}},
		{Request: &Change{Pair: client}}, {Issue: &Issue{Request: []byte("x")}},
		{Install: &Install{Change{Pair: client}, []byte("x")}}} {
		text, err := json.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n := newNode(t, pair.ModeManual)
		if r := n.asks(person, request{Renew: n.forced(client)}); r.Error != nil {
			t.Fatal(r.Error)
		}
		before, secrets := n.sees(server).Leaf, n.secrets()
		answer, err := json.Marshal(n.asks(service, json.RawMessage(text)))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range secrets {
			encoded, _ := json.Marshal(s)
			if bytes.Contains(answer, s) || bytes.Contains(answer, bytes.Trim(encoded, `"=`)) || bytes.Contains(n.log.b.Bytes(), s) {
				t.Errorf("a part of a key is in %s", answer)
			}
		}
		if n.sees(server).Leaf != before {
			t.Error("another pair was changed")
		}
	})
}
