// SPDX-License-Identifier: Apache-2.0

//go:build real

package approver

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

func TestFromATokenToACertificateAndItsRenewal(t *testing.T) {
	c := start(t)
	probes, metrics, reader := freePort(t), freePort(t), c.monitor()
	c.approver("--health-probe-bind-address", probes, "--metrics-bind-address", metrics)
	c.node("a")
	token := c.token("abcdef", csr.BootstrapGroup, "")
	begin := time.Now()
	first := c.send(token, newClaim(t, "a"))
	agent := c.issued(first)
	t.Logf("from request to certificate: %v, with the start of the approver", time.Since(begin).Round(time.Millisecond))
	if got := c.conditions(first.name); !strings.HasPrefix(got, "Approved NodeCertificateApproved ") ||
		!strings.Contains(got, "system:bootstrap:abcdef") {
		t.Errorf("the condition is %q", got)
	}
	begin = time.Now()
	second := c.send(agent, newClaim(t, "a"))
	again := c.issued(second)
	t.Logf("renewal: %v", time.Since(begin).Round(time.Millisecond))
	c.report(again, "a", map[string]any{"publicKey": second.publicKey(t)})
	if got := c.kubectl("get", "nodecertificatestates", "a", "-o",
		"jsonpath={.spec.bootstrap.request} {.spec.bootstrap.requester}"); got != first.name+" system:bootstrap:abcdef" {
		t.Errorf("the note says %q", got)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if answer := get(t, "http://"+probes+path); answer != "ok" {
			t.Errorf("%s answers %q", path, answer)
		}
	}
	if code, text := scrape(t, metrics, reader); !strings.Contains(text, `{check="",verdict="approve"} 2`) {
		t.Errorf("the metrics are %d %s", code, text)
	}
}

func TestBadRequestsAreDeniedOrLeftAndStrangersIgnored(t *testing.T) {
	c := start(t)
	approver := c.approver()
	c.node("a")
	c.node("b")
	admin := c.AdminClient()
	changed := func(change func(cl *claim)) claim {
		cl := newClaim(t, "a")
		change(&cl)
		return cl
	}
	spec := func(field string, value any) func(*claim) {
		return func(cl *claim) { cl.object["spec"].(map[string]any)[field] = value }
	}
	subject := func(cn string, o ...string) func(*claim) {
		return func(cl *claim) {
			der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: cn,
				Organization: o}, DNSNames: []string{"kubernetes"}}, cl.key)
			must.Do(t, err)
			spec("request", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))(cl)
		}
	}
	renamed := func(name string, change func(*claim)) claim {
		cl := changed(change)
		cl.name = name
		cl.object["metadata"] = map[string]any{"name": name}
		return cl
	}
	// Who approves by hand sees a name like ours and no subject.
	manager := changed(subject("system:kube-controller-manager"))
	c.send(c.Client(csr.User("b"), csr.Group), manager)
	borrowed := renamed(csr.NamePrefix+strings.Repeat("0", 32), subject("jane", "devs"))
	c.send(admin, borrowed)
	for _, cl := range []claim{manager, borrowed} {
		c.kubectl("wait", "csr/"+cl.name, "--for=condition=Denied", "--timeout=40s")
		if got := c.conditions(cl.name); !strings.HasPrefix(got, "Denied NodeCertificateDenied form: ") {
			t.Errorf("a foreign subject: the condition is %q", got)
		}
	}
	for check, cl := range map[string]claim{
		"form":     changed(subject(csr.User("a"), csr.Group)),
		"usages":   changed(spec("usages", []string{"client auth", "digital signature", "key encipherment"})),
		"lifetime": changed(spec("expirationSeconds", nil)),
		"name":     changed(func(cl *claim) { cl.name = "mine"; cl.object["metadata"] = map[string]any{"name": "mine"} }),
	} {
		c.send(admin, cl)
		c.kubectl("wait", "csr/"+cl.name, "--for=condition=Denied", "--timeout=40s")
		if got := c.conditions(cl.name); !strings.HasPrefix(got, "Denied NodeCertificateDenied "+check+": ") {
			t.Errorf("%s: the condition is %q", check, got)
		}
	}
	// The policy lets an agent ask in the name of another node, which only the approver can see.
	other := c.send(c.Client(csr.User("b"), csr.Group), newClaim(t, "a"))
	bound := c.send(c.token("bbbbbb", csr.BootstrapGroup+","+verdict.NodeGroup("b"), ""), newClaim(t, "a"))
	for _, cl := range []claim{other, bound} {
		c.kubectl("wait", "csr/"+cl.name, "--for=condition=Denied", "--timeout=40s")
		if got := c.conditions(cl.name); !strings.Contains(got, "requester: ") {
			t.Errorf("the condition is %q", got)
		}
	}
	c.kubectl("create", "clusterrole", "asks", "--verb=create", "--resource=certificatesigningrequests")
	c.kubectl("create", "clusterrolebinding", "asks", "--clusterrole=asks", "--user=jane")
	jane, cl := c.Client("jane"), newClaim(t, "a")
	c.until("jane may ask", func() bool {
		code, _ := c.ask(jane, http.MethodPost, requests, cl.object)
		return code == http.StatusCreated
	})
	c.left(cl.name, "access")
	c.left(c.send(c.token("abcdef", csr.BootstrapGroup, ""), newClaim(t, "unknown")).name, "inventory")

	// A stranger's requests for the same signer are nobody's business here.
	stranger := changed(subject("jane", "devs"))
	stranger.object["metadata"] = map[string]any{"name": "stranger"}
	c.send(jane, stranger)
	c.issued(c.send(admin, newClaim(t, "a"))) // it came after, and is done
	if got := c.conditions("stranger"); got != "" || !approver.running() {
		t.Errorf("a stranger's request: %q, running: %v", got, approver.running())
	}
}

func TestALiveIdentityIsKeptAndThereIsAlwaysAWay(t *testing.T) {
	c := start(t)
	c.approver()
	shared := c.token("shared", csr.BootstrapGroup, "")
	fresh := func(node string) claim {
		c.node(node)
		first := c.send(shared, newClaim(t, node))
		now := time.Now().UTC()
		c.report(c.issued(first), node, map[string]any{"publicKey": first.publicKey(t),
			"issued":  now.Add(-5 * time.Minute).Format(time.RFC3339),
			"expires": now.Add(week * time.Second).Format(time.RFC3339)})
		second := c.send(shared, newClaim(t, node))
		c.left(second.name, "live identity")
		return second
	}
	annotated := fresh("annotated")
	c.kubectl("annotate", "nodecertificatestate", "annotated", verdict.AllowAnnotation+"="+annotated.name)
	c.issued(annotated)

	expired := fresh("expired")
	c.report(c.Client(csr.User("expired"), csr.Group), "expired",
		map[string]any{"expires": time.Now().UTC().Add(-time.Second).Format(time.RFC3339)})
	c.issued(expired)

	// The node's certificate is no longer believed, and it asks with the key it has: another lifetime makes
	// another request of it.
	c.node("same")
	kept := c.send(shared, newClaim(t, "same"))
	c.report(c.issued(kept), "same", map[string]any{"publicKey": kept.publicKey(t)})
	c.issued(c.send(shared, claimFor(t, "same", kept.key, 2*week)))

	fresh("newer")
	// Times of the API have seconds: the token has to be younger than the report by a whole one.
	later := time.Now().Add(time.Second)
	c.until("a second has passed", func() bool { return time.Now().After(later) })
	cl := newClaim(t, "newer")
	c.issued(c.send(c.token("newers", csr.BootstrapGroup+","+verdict.NodeGroup("newer"), ""), cl))
}

// TestANodeThatFellSilentIsReplacedWithoutAnybody: no annotation, no new token, no expiry.
func TestANodeThatFellSilentIsReplacedWithoutAnybody(t *testing.T) {
	c := start(t)
	c.node("a")
	c.approver("--stale-after", "1m", "--lease", "6s")
	shared := c.token("shared", csr.BootstrapGroup, "")
	first := c.send(shared, newClaim(t, "a"))
	agent := c.issued(first)
	identity := map[string]any{"publicKey": first.publicKey(t),
		"expires": time.Now().UTC().Add(week * time.Second).Format(time.RFC3339)}
	reported := time.Now() // before the server notes its time
	c.report(agent, "a", identity)
	second := c.send(shared, newClaim(t, "a"))
	c.left(second.name, "live identity")
	c.kubectl("wait", "csr/"+second.name, "--for=condition=Approved", "--timeout=150s")
	silent := time.Since(reported)
	// The server notes whole seconds.
	if c.issued(second); silent < 59*time.Second {
		t.Errorf("replaced after %v", silent)
	}
	t.Logf("replaced after %v", silent.Round(time.Second))
}

func TestAMachineStandsForANodeThatHasNotJoined(t *testing.T) {
	c := start(t)
	must.Do(t, c.InstallMachines(t.Context()))
	must.Do(t, c.Apply(t.Context(), []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: machines.machine.openshift.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: machine.openshift.io
  names: {kind: Machine, listKind: MachineList, plural: machines, singular: machine}
  scope: Namespaced
  versions:
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`)))
	c.until("a machine is taken", func() bool {
		return c.Apply(t.Context(), []byte(`
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: m, namespace: openshift-machine-api}
status: {addresses: [{type: InternalDNS, address: worker-1}]}
`)) == nil
	})
	c.approver("--machines")
	token := c.token("abcdef", csr.BootstrapGroup, "")
	c.issued(c.send(token, newClaim(t, "worker-1")))
	c.left(c.send(token, newClaim(t, "worker-2")).name, "inventory")
}

func TestOneNodeIsGrantedOneFirstCertificate(t *testing.T) {
	c := start(t)
	token := c.token("abcdef", csr.BootstrapGroup, "")
	var claims []claim
	for range 3 { // before there is an approver, or a node
		claims = append(claims, c.send(token, newClaim(t, "a")))
	}
	newest := claims[0].name
	for _, cl := range claims {
		if c.created(cl.name)+cl.name > c.created(newest)+newest {
			newest = cl.name
		}
	}
	c.node("a")
	c.approver()
	for _, cl := range claims {
		if cl.name == newest {
			c.issued(cl)
		} else {
			c.left(cl.name, "newest", "live identity") // the latter if the newest was approved before
		}
	}
	other := c.token("ghijkl", csr.BootstrapGroup, "")
	c.left(c.send(other, newClaim(t, "a")).name, "live identity")
}

func TestOtherCredentialsThanATokenGetTheirOwnNodeOnly(t *testing.T) {
	c := start(t)
	c.approver()
	c.node("a")
	c.node("b")
	c.kubectl("create", "serviceaccount", "bootstrap", "-n", "default")
	c.kubectl("create", "clusterrolebinding", "others", "--clusterrole=node-cert-agent-bootstrap",
		"--serviceaccount=default:bootstrap", "--group=system:nodes")
	account := func(args ...string) *http.Client {
		token := c.kubectl(append([]string{"create", "token", "bootstrap", "-n", "default"}, args...)...)
		return c.Bearer(strings.TrimSpace(token))
	}
	shared := account()
	first := newClaim(t, "a")
	c.until("the binding is known", func() bool {
		code, _ := c.ask(shared, http.MethodPost, requests, first.object)
		return code == http.StatusCreated
	})
	c.issued(first)
	bound := account("--bound-object-kind", "Node", "--bound-object-name", "b")
	c.issued(c.send(bound, newClaim(t, "b")))
	kubelet := c.Client("system:node:b", "system:nodes")
	c.issued(c.send(kubelet, newClaim(t, "b")))
	for what, client := range map[string]*http.Client{"a ServiceAccount's token bound to": bound,
		"the kubelet of": kubelet} {
		cl := c.send(client, newClaim(t, "a"))
		c.kubectl("wait", "csr/"+cl.name, "--for=condition=Denied", "--timeout=40s")
		if got := c.conditions(cl.name); !strings.Contains(got, "requester: "+what) {
			t.Errorf("%s another node: %q", what, got)
		}
	}
	c.left(c.send(shared, newClaim(t, "unknown")).name, "inventory")
}

func TestATokenForSingleUseGoesWhenTheNodeHasReported(t *testing.T) {
	c := start(t)
	approver := c.approver("--lease", "6s")
	const secret = "bootstrap-token-single"
	there := func(name string) bool {
		code, _ := c.ask(c.AdminClient(), http.MethodGet, "/api/v1/namespaces/kube-system/secrets/"+name, nil)
		return code == http.StatusOK
	}
	single := c.token("single", csr.BootstrapGroup+","+verdict.NodeGroup("a"), `node-cert-agent.io/single-use: "true"`)
	first := c.send(single, newClaim(t, "a")) // there is no Node: the token stands for it
	agent := c.issued(first)
	// A report of another key proves nothing. The approver has seen it when it has done what came after.
	c.report(agent, "a", map[string]any{"publicKey": strings.Repeat("0", 64)})
	c.node("b")
	multi := c.token("multis", csr.BootstrapGroup, "")
	other := c.send(multi, newClaim(t, "b"))
	c.report(c.issued(other), "b", map[string]any{"publicKey": other.publicKey(t)})
	if !there(secret) {
		t.Fatal("the token went before its node reported")
	}
	// The approver is away when the report comes, and finds out afterwards.
	approver.kill()
	c.report(agent, "a", map[string]any{"publicKey": first.publicKey(t)})
	if !there(secret) {
		t.Fatal("the token went without an approver")
	}
	c.approver("--lease", "6s")
	c.until("the token is deleted", func() bool { return !there(secret) })
	c.until("the note says so", func() bool {
		return c.kubectl("get", "nodecertificatestate", "a", "-o", "jsonpath={.spec.bootstrap.secret}") == ""
	})
	if !there("bootstrap-token-multis") {
		t.Error("a token for many uses is gone")
	}
	c.issued(c.send(agent, newClaim(t, "a"))) // still no Node, and admitted
}

func TestOfTwoReplicasOneLeadsAndTheOtherTakesOver(t *testing.T) {
	c := start(t)
	c.node("a")
	c.node("b")
	replicas := []*process{c.approver("--lease", "6s"), c.approver("--lease", "6s")}
	token := c.token("abcdef", csr.BootstrapGroup, "")
	c.issued(c.send(token, newClaim(t, "a")))
	leading := 0
	c.until("one of two leads", func() bool {
		if leading = 0; replicas[1].leads() {
			leading = 1
		}
		return replicas[leading].leads() && !replicas[1-leading].leads()
	})
	replicas[leading].kill()
	begin := time.Now()
	c.issued(c.send(token, newClaim(t, "b")))
	t.Logf("taken over and issued within %v", time.Since(begin).Round(time.Millisecond))
	// A replica that is asked to end gives the lease back.
	last := replicas[1-leading]
	must.Do(t, last.Process.Signal(syscall.SIGTERM))
	<-last.done
	if code := last.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the last replica ended with %d", code)
	}
	if holder := c.kubectl("get", "lease", "-n", "node-cert-agent", "node-cert-controller", "-o",
		"jsonpath={.spec.holderIdentity}"); holder != "" {
		t.Errorf("the lease is held by %q", holder)
	}
}

func TestALostLeaseEndsTheProcessAndTheNextWaitsForTheAPIServer(t *testing.T) {
	c := start(t)
	list := filepath.Join(t.TempDir(), "nodes")
	must.Do(t, os.WriteFile(list, []byte("firewall-1 # no Node\nfirewall-2\n"), 0o600))
	approver := c.approver("--lease", "3s", "--nodes", list)
	token := c.token("abcdef", csr.BootstrapGroup, "")
	c.issued(c.send(token, newClaim(t, "firewall-1")))
	must.Do(t, c.StopAPIServer(t.Context(), syscall.SIGKILL))
	c.until("the lease is lost, and with it the process", func() bool { return !approver.running() })
	if code := approver.ProcessState.ExitCode(); code != 1 {
		t.Errorf("it ended with %d", code)
	}
	next := c.approver("--lease", "6s", "--nodes", list) // as the kubelet or systemd would
	must.Do(t, c.StartAPIServer(t.Context()))
	c.issued(c.send(token, newClaim(t, "firewall-2")))
	if !next.running() {
		t.Error("the next process has ended")
	}
}

func TestARemovedRightIsNamedAndItsReturnIsNoticed(t *testing.T) {
	c := start(t)
	c.node("a")
	c.kubectl("delete", "clusterrolebinding", "node-cert-agent-bootstrap")
	c.kubectl("create", "clusterrole", "asks", "--verb=create", "--resource=certificatesigningrequests")
	c.kubectl("create", "clusterrolebinding", "asks", "--clusterrole=asks", "--group="+csr.BootstrapGroup)
	approver := c.approver("--lease", "6s")
	token, cl := c.token("abcdef", csr.BootstrapGroup, ""), newClaim(t, "a")
	c.until("the token may ask", func() bool {
		code, _ := c.ask(token, http.MethodPost, requests, cl.object)
		return code == http.StatusCreated
	})
	c.left(cl.name, "access")
	must.Do(t, c.InstallShipped(t.Context()))
	approver.kill() // rather than wait for the minute after which it looks again
	c.approver("--lease", "6s")
	c.issued(cl)
}
