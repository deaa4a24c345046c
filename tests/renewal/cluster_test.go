// SPDX-License-Identifier: Apache-2.0

//go:build real

package renewal

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/probe"
	"github.com/node-cert-agent/node-cert-agent/renew"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/replace"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/staticpods"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

const pki = "etc/kubernetes/pki/etcd/"

// plane is three hosts with a member of etcd each.
type plane struct {
	testing.TB
	ca *testpki.Authority
	// binary is etcd's, and kubeadm the other's.
	binary, kubeadm string
	hosts           []*node
	records         records
}

// node is one of the hosts.
type node struct {
	*staticpods.Tree
	name, ip string
	flags    []string
	etcd     *exec.Cmd
	client   *signer.Client
}

// records are the lines of all signers in their order, each with the name of its host.
type records struct {
	mu    sync.Mutex
	lines []string
}

type recorder struct {
	to   *records
	host string
}

func (r recorder) Write(p []byte) (int, error) {
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		r.to.lines = append(r.to.lines, r.host+" "+strings.TrimSpace(line))
	}
	return len(p), nil
}

// with are the lines that hold a text.
func (r *records) with(text string) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if strings.Contains(line, text) {
			all = append(all, line)
		}
	}
	return all
}

// start makes three hosts whose pairs have lived for so long and will for so long, and starts their members.
func start(t testing.TB, lived, left time.Duration) *plane {
	t.Helper()
	b, err := controlplane.Build(t.Context(), os.Stderr)
	must.Do(t, err)
	p := &plane{TB: t, binary: b.Etcd(), kubeadm: filepath.Join(b.Dir, "kubeadm"), ca: testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "etcd-ca"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(10000 * time.Hour)}, testpki.ECDSA)}
	var members []string
	for i := range 3 {
		n := &node{Tree: staticpods.New(t), name: fmt.Sprintf("host-%d", i+1), ip: fmt.Sprintf("127.0.0.%d", 11+i)}
		n.CA = p.ca
		members = append(members, fmt.Sprintf("%s=https://%s:%s", n.name, n.ip, peerPort))
		p.hosts = append(p.hosts, n)
	}
	for _, n := range p.hosts {
		n.Write(pki+"ca.crt", string(p.ca.PEM()))
		n.Write(pki+"ca.key", string(p.ca.KeyPEM()))
		n.age(lived, left)
		n.flags = []string{"--name=" + n.name, "--data-dir=/data", "--client-cert-auth=true", "--peer-client-cert-auth=true",
			"--cert-file=/" + pki + "server.crt", "--key-file=/" + pki + "server.key", "--trusted-ca-file=/" + pki + "ca.crt",
			"--peer-cert-file=/" + pki + "peer.crt", "--peer-key-file=/" + pki + "peer.key",
			"--peer-trusted-ca-file=/" + pki + "ca.crt", "--listen-client-urls=https://" + n.ip + ":" + clientPort,
			"--advertise-client-urls=https://" + n.ip + ":" + clientPort, "--listen-peer-urls=https://" + n.ip + ":" + peerPort,
			"--initial-advertise-peer-urls=https://" + n.ip + ":" + peerPort, "--initial-cluster=" + strings.Join(members, ","),
			"--initial-cluster-token=" + t.Name(), "--log-level=error"}
		argv := append([]string{"etcd"}, n.flags...)
		n.Kubelet(map[string]string{"etcd.yaml": staticpods.Manifest(quoted(argv)...)})
		n.Runs(20, "/kubepods/burstable/pod1/2", argv...)
		p.run(n)
		p.sign(n)
	}
	return p
}

// The ports are the same on each address, as they are on each host.
const clientPort, peerPort = "22379", "22380"

// quoted makes flags with commas fit for a list in YAML.
func quoted(argv []string) (all []string) {
	for _, a := range argv {
		all = append(all, "'"+a+"'")
	}
	return all
}

// age gives a host pairs that have lived for so long, and will for so long.
func (n *node) age(lived, left time.Duration) {
	for name, usages := range map[string][]x509.ExtKeyUsage{
		"server":             {x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		"peer":               {x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		"healthcheck-client": {x509.ExtKeyUsageClientAuth},
	} {
		n.Pair(pki+name, n.CA.Issue(x509.Certificate{Subject: pkix.Name{CommonName: n.name}, ExtKeyUsage: usages,
			NotBefore: time.Now().Add(-lived), NotAfter: time.Now().Add(left), DNSNames: []string{n.name, "localhost"},
			IPAddresses: []net.IP{net.ParseIP(n.ip), net.IPv4(127, 0, 0, 1)}}))
	}
}

// run starts the member of a host; its files are those of the host's directory.
func (p *plane) run(n *node) {
	p.Helper()
	var flags []string
	for _, f := range n.flags {
		name, value, _ := strings.Cut(f, "=")
		if strings.HasPrefix(value, "/") {
			value = filepath.Join(n.Root, value)
		}
		flags = append(flags, name+"="+value)
	}
	n.etcd = exec.Command(p.binary, flags...)
	var said bytes.Buffer
	n.etcd.Stdout, n.etcd.Stderr = &said, &said
	must.Do(p, n.etcd.Start())
	e := n.etcd
	p.Cleanup(func() {
		_ = e.Process.Kill() // it may have been already
		_ = e.Wait()
		if p.Failed() {
			p.Logf("etcd of %s says\n%s", n.name, &said)
		}
	})
}

// sign starts the signer of a host, which allows what renewal.mode renew does.
func (p *plane) sign(n *node) {
	p.Helper()
	must.Do(p, os.Mkdir(filepath.Join(n.Root, "state"), 0o700))
	tree, err := disk.Open(n.Root)
	must.Do(p, err)
	state, err := tree.Directory("/state")
	must.Do(p, err)
	r, err := replace.Open(tree, state)
	must.Do(p, err)
	_, err = r.Recover()
	must.Do(p, err)
	socket := filepath.Join(p.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	must.Do(p, err)
	s := signer.Signer{Host: inspect.Host{Root: n.Root, Proc: n.Proc(), UID: uint32(os.Getuid())}, Replacer: r, Now: time.Now,
		Random: rand.Reader, State: state, Load: func() (signer.Policy, error) { return signer.Policy{Policy: policy}, nil }}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := error(nil)
		for ctx.Err() == nil && err == nil { // systemd starts one that was idle anew
			err = serve(ctx, ln, s, recorder{&p.records, n.name})
		}
		ended <- err
	}()
	n.client = signer.Dial(socket)
	p.Cleanup(func() {
		_ = n.client.Close()
		cancel()
		must.Do(p, <-ended)
		_ = ln.Close()
	})
}

// serve is a process of the signer.
func serve(ctx context.Context, ln *net.UnixListener, s signer.Signer, log recorder) error {
	file, err := ln.File()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	passed, err := net.FileListener(file)
	if err != nil {
		return err
	}
	defer func() { _ = passed.Close() }()
	return signer.Serve(ctx, passed.(*net.UnixListener), s, func(uint32) bool { return true }, log)
}

var policy = pair.Policy{Mode: pair.ModeRenew, RenewBefore: 24 * time.Hour, WarnBefore: time.Second,
	ThroughEtcd: true}

// onDemand is what renews the pairs of a host.
func (p *plane) onDemand(n *node) renew.OnDemand {
	return renew.OnDemand{Signer: n.client, Leaf: probe.Leaf, Get: renew.Get, Clock: clock.System{}, Policy: policy,
		Timeout: 30 * time.Second, Pause: 100 * time.Millisecond, Say: func(o renew.Outcome) {
			p.Logf("%s: %s %s, ends at %s %s", n.name, o.Pair, o.Result, o.Ends.Format(time.TimeOnly), o.Why)
		}}
}

// service is what does so by itself.
func (p *plane) service(n *node, degradedBelow time.Duration) *renew.Unattended {
	return &renew.Unattended{OnDemand: p.onDemand(n), Connect: renew.Connect, Host: n.name, DegradedBelow: degradedBelow}
}

// ask is a client of one member, with a pair of its own.
func (p *plane) ask(n *node) *etcd.Client {
	p.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(p.ca.Cert)
	c, err := etcd.New("https://"+n.ip+":"+clientPort, &tls.Config{RootCAs: roots,
		Certificates: []tls.Certificate{p.ca.Client("a-test").TLS()}}, 5*time.Second)
	must.Do(p, err)
	return c
}

// ready waits until each member reads through a majority.
func (p *plane) ready() {
	p.Helper()
	for _, n := range p.hosts {
		wait.For(p, n.name+" answers", func() bool {
			c := p.ask(n)
			defer c.Close()
			_, err := c.Get(p.Context(), "x")
			return err == nil
		})
	}
}
