// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/agenttest"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/probe"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

var (
	one = testpki.New("one", testpki.ECDSA)
	two = testpki.New("two", testpki.ECDSA)
	own = testpki.New("server", testpki.ECDSA).Issue(x509.Certificate{Subject: pkix.Name{CommonName: "server"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}).TLS()
)

func certs(t *testing.T, authorities ...*testpki.Authority) (out []pki.Cert) {
	t.Helper()
	for _, a := range authorities {
		b, err := pki.Parse(a.PEM(), pki.Options{})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b.Certs...)
	}
	return out
}

// server is a consumer that follows no file: a test says whom it accepts.
type server struct {
	net.Listener
	accepts atomic.Pointer[x509.CertPool]
	// heard takes, of every connection, what was sent after the handshake and how many certificates.
	heard chan string
	seen  chan struct{} // of every handshake begun
}

func serve(t *testing.T, base *tls.Config) *server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l, heard: make(chan string, 100), seen: make(chan struct{}, 100)}
	base.Certificates = []tls.Certificate{own}
	config := base.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		s.seen <- struct{}{}
		c := base.Clone()
		c.ClientCAs = s.accepts.Load()
		return c, nil
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.hear(tls.Server(conn, config))
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	return s
}

func (s *server) hear(conn *tls.Conn) {
	defer func() { _ = conn.Close() }()
	err := conn.Handshake()
	sent := []byte(nil)
	if err == nil {
		sent, err = io.ReadAll(conn)
	}
	if n := len(conn.ConnectionState().PeerCertificates); n > 0 {
		sent = append(sent, " a certificate"...)
	}
	if err != nil {
		sent = append(sent, err.Error()...)
	}
	s.heard <- string(sent)
}

func (s *server) accept(authorities ...*testpki.Authority) {
	pool := x509.NewCertPool()
	for _, a := range authorities {
		pool.AddCert(a.Cert)
	}
	s.accepts.Store(pool)
}

func (s *server) consumer() liveness.Consumer {
	return liveness.Consumer{Kind: liveness.ClientCA, Address: s.Addr().String(), Mismatch: liveness.Stale}
}

// prove runs one proof beside the test.
func prove(t *testing.T, clock clock.Clock, c liveness.Consumer, want liveness.ProbeTarget,
	patience time.Duration) <-chan liveness.ProbeResult {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	out := make(chan liveness.ProbeResult, 1)
	go func() { out <- probe.Prober{Clock: clock}.Probe(ctx, c, want, patience) }()
	return out
}

func TestAConsumerThatTookTheBytesIsLive(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, demand := range []tls.ClientAuthType{tls.RequestClientCert, tls.RequireAndVerifyClientCert} {
			s := serve(t, &tls.Config{ClientAuth: demand, MaxVersion: version})
			s.accept(one, two)
			got := <-prove(t, agenttest.NewClock(), s.consumer(), liveness.ProbeTarget{Certs: certs(t, one, two)}, time.Minute)
			if got != (liveness.ProbeResult{State: liveness.Live}) {
				t.Errorf("%s, demand %v: got %+v", tls.VersionName(version), demand, got)
			}
		}
	}
}

func TestAProbeSendsNoCertificateAndNoRequest(t *testing.T) {
	s := serve(t, &tls.Config{ClientAuth: tls.RequestClientCert})
	s.accept(one)
	<-prove(t, agenttest.NewClock(), s.consumer(), liveness.ProbeTarget{Certs: certs(t, one)}, 0)
	if heard := <-s.heard; heard != "" {
		t.Errorf("the server heard %q", heard)
	}
}

func TestAConsumerIsAskedUntilItIsLive(t *testing.T) {
	s, clock := serve(t, &tls.Config{ClientAuth: tls.RequestClientCert}), agenttest.NewClock()
	s.accept(one)
	answer := prove(t, clock, s.consumer(), liveness.ProbeTarget{Certs: certs(t, one, two)}, time.Minute)
	for range 2 {
		<-s.seen
		clock.AwaitTimers(1)
		clock.Move(time.Second)
	}
	<-s.seen
	clock.AwaitTimers(1)
	s.accept(one, two) // before the clock moves: nobody moves it again for who asks a fourth time and is early
	clock.Move(time.Second)
	if got := <-answer; got != (liveness.ProbeResult{State: liveness.Live}) {
		t.Errorf("got %+v", got)
	}
}

func TestAConsumerThatNeverTakesTheBytesIsStale(t *testing.T) {
	for sentence, c := range map[string]struct {
		mismatch liveness.State
		want     liveness.ProbeResult
	}{
		"where what it shows is what it uses": {liveness.Stale, liveness.ProbeResult{State: liveness.Stale,
			Reason: "announces 1 of the file's 2 CAs"}},
		"and unknown where it may be old": {liveness.Unknown, liveness.ProbeResult{State: liveness.Unknown,
			Reason: "announces 1 of the file's 2 CAs, which may be what it started with"}},
	} {
		s, clock := serve(t, &tls.Config{ClientAuth: tls.RequestClientCert}), agenttest.NewClock()
		s.accept(one)
		consumer := s.consumer()
		consumer.Mismatch = c.mismatch
		answer := prove(t, clock, consumer, liveness.ProbeTarget{Certs: certs(t, one, two)}, time.Minute)
		<-s.seen
		clock.AwaitTimers(1) // it will ask again
		clock.Move(time.Minute)
		if got := <-answer; got != c.want {
			t.Errorf("%s: got %+v, want %+v", sentence, got, c.want)
		}
	}
}

func TestWhatCannotBeToldIsNotAskedTwice(t *testing.T) {
	s := serve(t, &tls.Config{ClientAuth: tls.NoClientCert})
	got := <-prove(t, agenttest.NewClock(), s.consumer(), liveness.ProbeTarget{Certs: certs(t, one)}, time.Minute)
	if got != (liveness.ProbeResult{State: liveness.Unknown, Reason: "does not ask for client certificates"}) {
		t.Errorf("got %+v", got)
	}
}

func TestAConsumerThatDoesNotRunHasNothingToProve(t *testing.T) {
	s := serve(t, &tls.Config{})
	_ = s.Close()
	got := <-prove(t, agenttest.NewClock(), s.consumer(), liveness.ProbeTarget{Certs: certs(t, one)}, 0)
	if got != (liveness.ProbeResult{State: liveness.Unknown, Reason: "nothing listens there"}) {
		t.Errorf("got %+v", got)
	}
}

func TestWhoDoesNotSpeakTLSCannotBeAsked(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.0 400\n\x1b[2J")
			_ = conn.Close()
		}
	}()
	c := liveness.Consumer{Kind: liveness.ClientCA, Address: l.Addr().String(), Mismatch: liveness.Stale}
	got := <-prove(t, agenttest.NewClock(), c, liveness.ProbeTarget{Certs: certs(t, one)}, 0)
	if got.State != liveness.Unknown || !strings.HasPrefix(got.Reason, "no TLS handshake: ") ||
		strings.Contains(got.Reason, "\x1b") {
		t.Errorf("got %+v", got)
	}
}

func TestAServerDoesNotNoticeThatNobodyWaitsForItsAnswerAnyMore(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	base := &tls.Config{ClientAuth: tls.RequestClientCert}
	s := serve(t, base)
	s.accept(one)
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		close(begun)
		<-goOn
		return &own, nil
	}
	base.Certificates = nil
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		target := liveness.ProbeTarget{Certs: certs(t, one)}
		probe.Prober{Clock: agenttest.NewClock()}.Probe(ctx, s.consumer(), target, time.Hour)
	}()
	<-begun
	cancel()
	<-ended // at once, in the middle of a handshake
	close(goOn)
	if heard := <-s.heard; heard != "" {
		t.Errorf("the server heard %q", heard)
	}
}

func TestAProbeEndsWithItsContext(t *testing.T) {
	s, clock := serve(t, &tls.Config{ClientAuth: tls.RequestClientCert}), agenttest.NewClock()
	s.accept(two)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		probe.Prober{Clock: clock}.Probe(ctx, s.consumer(), liveness.ProbeTarget{Certs: certs(t, one)}, time.Hour)
	}()
	clock.AwaitTimers(1)
	cancel()
	<-ended
}
