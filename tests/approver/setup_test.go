// SPDX-License-Identifier: Apache-2.0

//go:build real

package approver

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

const (
	requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	states   = "/apis/node-cert-agent.io/v1alpha1/nodecertificatestates"
	week     = 7 * 24 * 3600
)

var binary string

func TestMain(m *testing.M) { os.Exit(built(m)) }

// built builds the approver, runs the tests and returns their code.
func built(m *testing.M) int {
	dir, err := os.MkdirTemp("", "approver-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "node-cert-controller")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/node-cert-controller")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the approver: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// cluster is a control plane with everything shipped, the component single-use included.
type cluster struct {
	*controlplane.Plane
	t *testing.T
}

func start(t *testing.T) *cluster {
	t.Helper()
	p, err := controlplane.Start(t.Context(), controlplane.Options{Progress: t.Output()})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	must.Do(t, p.InstallShipped(t.Context()))
	must.Do(t, p.InstallSingleUse(t.Context()))
	return &cluster{p, t}
}

// freePort is a port of the loopback interface on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer l.Close()
	return l.Addr().String()
}

// get is what a successful answer holds.
func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	must.Do(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", url, resp.Status)
	}
	return string(answer)
}

// process is a running approver.
type process struct {
	*exec.Cmd
	done chan struct{}
	log  string
}

// approver starts the binary, which ends, if not before, with the test.
func (c *cluster) approver(args ...string) *process {
	c.t.Helper()
	p := &process{exec.Command(binary, append([]string{"--kubeconfig", c.config(c.URL())}, args...)...),
		make(chan struct{}), filepath.Join(c.t.TempDir(), "log")}
	log, err := os.Create(p.log)
	must.Do(c.t, err)
	defer log.Close()
	p.Stdout, p.Stderr = log, log
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.Do(c.t, p.Start())
	go func() {
		_ = p.Wait() // its end is what counts
		close(p.done)
	}()
	c.t.Cleanup(func() {
		p.kill()
		if c.t.Failed() {
			b, _ := os.ReadFile(p.log)
			c.t.Logf("an approver said:\n%s", b)
		}
	})
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill() // it may have been killed already
	<-p.done
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) said(words string) bool {
	b, err := os.ReadFile(p.log)
	return err == nil && strings.Contains(string(b), words)
}

// leads tells whether the replica has said that it leads, and has not ended since.
func (p *process) leads() bool { return p.said(`"leading"`) && p.running() }

// ask sends one request; method PATCH is a server-side apply.
func (c *cluster) ask(client *http.Client, method, path string, body any) (int, string) {
	c.t.Helper()
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		must.Do(c.t, err)
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.URL()+path, content)
	must.Do(c.t, err)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	resp, err := client.Do(req)
	must.Do(c.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	must.Do(c.t, err)
	return resp.StatusCode, string(answer)
}

func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.Kubectl(c.t.Context(), args...)
	must.Do(c.t, err)
	return out
}

// until tries again until it succeeds, where the outside tells nobody.
func (c *cluster) until(what string, try func() bool) {
	c.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(40 * time.Second)
	for !try() {
		select {
		case <-limit:
			c.t.Fatalf("not within 40 seconds: %s", what)
		case <-tick.C:
		}
	}
}

// node makes a Node, which is the inventory.
func (c *cluster) node(name string) {
	c.t.Helper()
	must.Do(c.t, c.Apply(c.t.Context(), fmt.Appendf(nil, "{apiVersion: v1, kind: Node, metadata: {name: %s}}", name)))
}

// token makes a bootstrap token with extra groups and returns its bearer.
func (c *cluster) token(id, groups, labels string) *http.Client {
	c.t.Helper()
	token, err := c.MakeToken(c.t.Context(), controlplane.Token{ID: id, Secret: "0123456789abcdef", Groups: groups,
		Labels: labels})
	must.Do(c.t, err)
	return c.Bearer(token)
}

// claim is a request for a certificate and its key.
type claim struct {
	name, node string
	key        *ecdsa.PrivateKey
	object     map[string]any
}

func newClaim(t *testing.T, node string) claim {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	return claimFor(t, node, key, week)
}

func claimFor(t *testing.T, node string, key *ecdsa.PrivateKey, seconds int32) claim {
	t.Helper()
	request, err := csr.Build(node, key, rand.Reader)
	must.Do(t, err)
	r, err := csr.Check(request)
	must.Do(t, err)
	name := csr.Name(r, csr.Signer, csr.Usages(), seconds)
	return claim{name, node, key, map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"request": request, "signerName": csr.Signer, "usages": csr.Usages(),
			"expirationSeconds": seconds},
	}}
}

// publicKey is the key as the state object names it.
func (cl claim) publicKey(t *testing.T) string {
	t.Helper()
	spki, err := x509.MarshalPKIXPublicKey(cl.key.Public())
	must.Do(t, err)
	sum := sha256.Sum256(spki)
	return hex.EncodeToString(sum[:])
}

// send makes the object and fails if the API server does not take it.
func (c *cluster) send(client *http.Client, cl claim) claim {
	c.t.Helper()
	if code, answer := c.ask(client, http.MethodPost, requests, cl.object); code != http.StatusCreated {
		c.t.Fatalf("a request for %s: %d %s", cl.node, code, answer)
	}
	return cl
}

// issued waits for the certificate and returns a client that has it.
func (c *cluster) issued(cl claim) *http.Client {
	c.t.Helper()
	c.kubectl("wait", "csr/"+cl.name, "--for=jsonpath={.status.certificate}", "--timeout=40s")
	var object struct{ Status struct{ Certificate []byte } }
	must.Do(c.t, json.Unmarshal([]byte(c.kubectl("get", "csr", cl.name, "-o", "json")), &object))
	block, _ := pem.Decode(object.Status.Certificate)
	transport := c.AdminClient().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{block.Bytes}, PrivateKey: cl.key}}
	return &http.Client{Transport: transport}
}

// conditions are the types, reasons and messages of a request's conditions.
func (c *cluster) conditions(name string) string {
	c.t.Helper()
	return c.kubectl("get", "csr", name, "-o",
		`jsonpath={range .status.conditions[*]}{.type} {.reason} {.message}{"\n"}{end}`)
}

// created is when a request was made.
func (c *cluster) created(name string) string {
	c.t.Helper()
	return c.kubectl("get", "csr", name, "-o", "jsonpath={.metadata.creationTimestamp}")
}

// left waits for the event that says why a request is left, by one of the checks, and makes sure that
// it is.
func (c *cluster) left(name string, checks ...string) {
	c.t.Helper()
	c.until(fmt.Sprintf("an event about %s that names one of %v", name, checks), func() bool {
		events := c.kubectl("get", "events", "-n", "default", "--field-selector=involvedObject.name="+name, "-o",
			"jsonpath={.items[*].message}")
		return slices.ContainsFunc(checks, func(check string) bool { return strings.Contains(events, check+": ") })
	})
	if got := c.conditions(name); got != "" {
		c.t.Errorf("%s was to be left and is not: %s", name, got)
	}
}

// report writes the state of a node as its agent would.
func (c *cluster) report(agent *http.Client, node string, identity map[string]any) {
	c.t.Helper()
	c.reportAt(agent, node, time.Now().UTC().Format(time.RFC3339), identity)
}

// reportAt is a report by another clock.
func (c *cluster) reportAt(agent *http.Client, node, heartbeat string, identity map[string]any) {
	c.t.Helper()
	object := map[string]any{"apiVersion": "node-cert-agent.io/v1alpha1", "kind": "NodeCertificateState",
		"metadata": map[string]any{"name": node}}
	if code, answer := c.ask(agent, http.MethodPost, states+"?fieldManager=node-cert-agent",
		object); code != http.StatusCreated && code != http.StatusConflict {
		c.t.Fatalf("the state of %s: %d %s", node, code, answer)
	}
	object["status"] = map[string]any{"state": "synced", "heartbeat": heartbeat, "identity": identity}
	if code, answer := c.ask(agent, http.MethodPatch, states+"/"+node+"/status?fieldManager=node-cert-agent&force=true",
		object); code != http.StatusOK {
		c.t.Fatalf("the report of %s: %d %s", node, code, answer)
	}
}
