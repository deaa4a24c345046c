// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const (
	// patientConfig has the identity's times in seconds.
	patientConfig = cluster.Config + `node: {name: node}
bootstrap: {pollInterval: 200ms, idlePollInterval: 1s, followHint: always}
identity: {approvalPollMax: 1s, checkInterval: 2s, suspectAfter: 3s, deniedMin: 2s, deniedMax: 4s}
`
	stateDir     = "/var/lib/node-cert-agent/"
	identityFile = stateDir + "identity.pem"
)

// asking is a host whose agent has a token and waits for approval.
func asking(t *testing.T) (n *node, ca []byte) {
	t.Helper()
	n = start(t, cluster.Options{Bootstrap: true, Config: patientConfig})
	ca = testpki.NewCA("first")
	n.create(kubeletCA(ca))
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("10-token", "token1"))
	n.Must(n.StartAgent(n.Ctx))
	n.awaitIdentity("pending")
	return n, ca
}

// identified is a host whose agent has got its identity with a token.
func identified(t *testing.T) *node {
	t.Helper()
	n, ca := asking(t)
	n.Must(n.Approve(n.Ctx))
	n.awaitIdentity("active")
	n.AwaitFile(cluster.KubeletCA, ca)
	return n
}

func (n *node) awaitIdentity(state report.IdentityState) {
	n.T.Helper()
	n.Await("identity "+string(state), func() bool { i := n.Status().Identity; return i != nil && i.State == state })
}

// follows proves that a change of the ControllerConfig arrives.
func (n *node) follows() {
	n.T.Helper()
	ca := testpki.NewCA("another")
	n.patch(kubeletCA(ca))
	n.AwaitFile(cluster.KubeletCA, ca)
}

func (n *node) requests() map[string]string {
	n.T.Helper()
	all, err := n.Requests(n.Ctx)
	n.Must(err)
	return all
}

// replaceIdentity changes the file while the agent is stopped, as its owner would.
func (n *node) replaceIdentity(data []byte) {
	n.T.Helper()
	n.Must(n.Host.PutFile(identityFile, host.File{Data: data, Mode: 0o600}))
	n.Run("chown", "node-cert-agent:node-cert-agent", identityFile)
}

// notes is the part of an identity file that is neither certificate nor key.
func notes(t *testing.T, identity []byte) []byte {
	t.Helper()
	i := bytes.Index(identity, []byte("-----BEGIN NODE-CERT-AGENT"))
	if i < 0 {
		t.Fatal("an identity without notes")
	}
	return identity[i:]
}

func TestFromATokenToTheFirstFile(t *testing.T) {
	n := identified(t)
	if left := n.Run("ls", cluster.BootstrapDir); left != "" {
		t.Errorf("left in the bootstrap directory: %s", left)
	}
	if modes := n.Run("stat", "-c", "%a %U", identityFile, stateDir); modes != "600 node-cert-agent\n700 node-cert-agent" {
		t.Errorf("modes are %q", modes)
	}
	for _, k := range []audit.Kind{audit.RequestCreated, audit.IdentityIssued, audit.IdentityProven,
		audit.CredentialConsumed} {
		n.AwaitRecord(k)
		if got := n.Records(k); got != 1 {
			t.Errorf("%d records %s, want 1", got, k.Name)
		}
	}
	out := n.Run("node-cert-agent", "status")
	if !regexp.MustCompile(`(?m)^Identity: +active\nCertificate: +[0-9a-f]+ until `).MatchString(out) {
		t.Errorf("status prints\n%s", out)
	}
	if _, err := n.Host.Run(n.Ctx, "node-cert-agent", "diff"); err != nil {
		t.Errorf("diff with the service's identity: %v", err)
	}
	n.follows()

	// A runtime that dies prints where it was; no dump of its memory may be left.
	n.Run("touch", "/run/before")
	before := n.Status().Since
	n.Run("systemctl", "kill", "-s", "QUIT", "node-cert-agent.service", "node-cert-agent-writer.service")
	n.Await("another start", func() bool { return n.Status().Since.After(before) })
	n.follows()
	if cores := n.Run("find", "/", "-xdev", "-newer", "/run/before", "-name", "core*", "-type", "f"); cores != "" {
		t.Errorf("core dumps are left: %s", cores)
	}
	n.noSecrets()
}

func TestOtherCredentialsThanABootstrapTokenServeAsWell(t *testing.T) {
	n := start(t, cluster.Options{Bootstrap: true, Config: patientConfig})
	ca := testpki.NewCA("first")
	n.create(kubeletCA(ca))
	n.Must(n.Plane.AllowBootstrap(n.Ctx))
	kubectl := func(words ...string) string {
		out, err := n.Plane.Kubectl(n.Ctx, words...)
		n.Must(err)
		return strings.TrimSpace(out)
	}
	kubectl("create", "serviceaccount", "joiner", "-n", "default")
	kubectl("create", "clusterrolebinding", "joiner", "--clusterrole=node-cert-agent-bootstrap",
		"--serviceaccount=default:joiner")
	put := func(name string, data []byte) {
		n.Must(n.Host.PutFile(cluster.BootstrapDir+"/"+name+".kubeconfig", host.File{Mode: 0o600, Data: data}))
	}
	put("10-serviceaccount", kubeconfigs.Token(cluster.Server, n.Plane.CA().PEM(),
		kubectl("create", "token", "joiner", "-n", "default")))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitApproved()
	n.AwaitFile(cluster.KubeletCA, ca)
	n.AwaitRecord(audit.CredentialConsumed)

	n.Run("systemctl", "stop", "node-cert-agent.service")
	n.Run("node-cert-agent", "reset")
	file, err := n.Plane.Kubeconfig(cluster.Server, "joiner", "system:bootstrappers:node-cert-agent")
	n.Must(err)
	data, err := os.ReadFile(file)
	n.Must(err)
	put("20-certificate", data)
	n.Run("systemctl", "start", "node-cert-agent.service")
	n.AwaitApproved()
	n.follows()
	n.AwaitRecord(audit.RequestCreated, "NODECERT_CREDENTIAL=20-certificate.kubeconfig")
}

// noSecrets looks for the token and for keys where no secret belongs.
func (n *node) noSecrets() {
	n.T.Helper()
	for what, text := range map[string]string{"the journal": n.Journal("-o", "export"), "the status": n.statusText(),
		"the metrics": string(n.File("/run/node-cert-agent/metrics.prom"))} {
		for _, marker := range []string{cluster.TokenSecret, "PRIVATE KEY"} {
			if strings.Contains(text, marker) {
				n.T.Errorf("%s holds %q", what, marker)
			}
		}
	}
}

// awaitTransition waits for a transition's record, or for the end of all: who is killed between a step and its
// record leaves none.
func (n *node) awaitTransition(k audit.Kind) {
	n.T.Helper()
	ctx, cancel := context.WithCancel(n.Ctx)
	defer cancel()
	seen := make(chan struct{})
	go func() {
		if _, err := n.Host.WaitJournal(ctx, []string{"MESSAGE_ID=" + string(k.ID)}, nil); err == nil {
			close(seen)
		}
	}()
	n.Await(k.Name, func() bool {
		select {
		case <-seen:
			return true
		default:
			_, err := os.Stat(n.Host.Path(cluster.BootstrapDir + "/10-token.kubeconfig"))
			return errors.Is(err, fs.ErrNotExist)
		}
	})
}

func TestKilledAtEachTransitionTheAgentStillGetsItsIdentity(t *testing.T) {
	n := start(t, cluster.Options{Bootstrap: true, Config: patientConfig})
	ca := testpki.NewCA("first")
	n.create(kubeletCA(ca))
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("10-token", "token1"))
	n.Must(n.StartAgent(n.Ctx))
	for _, transition := range []audit.Kind{audit.RequestCreated, audit.IdentityIssued, audit.IdentityProven,
		audit.CredentialConsumed} {
		n.awaitTransition(transition)
		n.Run("systemctl", "kill", "-s", "KILL", "node-cert-agent.service")
		if transition == audit.RequestCreated {
			n.Must(n.Approve(n.Ctx))
		}
	}
	n.awaitIdentity("active")
	n.AwaitFile(cluster.KubeletCA, ca)
	n.follows()
	if got := n.requests(); len(got) != 1 {
		t.Errorf("requests are %v", got)
	}
	if _, err := os.Stat(n.Host.Path(cluster.BootstrapDir + "/10-token.kubeconfig")); !os.IsNotExist(err) {
		t.Errorf("the credential is still there: %v", err)
	}
	n.noSecrets()
}

func TestAnAbsentApproverMeetsOneRequestAndOneKey(t *testing.T) {
	n, ca := asking(t)
	key := n.File(stateDir + "pending/key.pem")
	for range 2 {
		before := n.Status().Since
		n.Run("systemctl", "kill", "-s", "KILL", "node-cert-agent.service")
		n.Await("another start", func() bool { return n.Status().Since.After(before) })
		n.awaitIdentity("pending")
	}
	if got := n.requests(); len(got) != 1 || !bytes.Equal(key, n.File(stateDir+"pending/key.pem")) || len(key) == 0 {
		t.Errorf("requests are %v", got)
	}
	if out := n.Run("systemctl", "show", "-P", "StatusText", "node-cert-agent.service"); !strings.Contains(out,
		"no identity: pending: waiting for approval, as node-cert-agent-") {
		t.Errorf("systemd shows %q", out)
	}
	n.Must(n.Approve(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, ca)
	if got := n.requests(); len(got) != 1 {
		t.Errorf("requests are %v", got)
	}
}

func TestADeniedRequestIsReportedAndFollowedByAnother(t *testing.T) {
	n, ca := asking(t)
	n.Must(n.Deny(n.Ctx))
	n.AwaitRecord(audit.RequestDenied)
	n.Await("a second request", func() bool { return len(n.requests()) == 2 })
	n.Must(n.Approve(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, ca)
}

func TestADeletedRequestComesBackUnderItsName(t *testing.T) {
	n, ca := asking(t)
	first := n.requests()
	_, err := n.Plane.Kubectl(n.Ctx, "delete", "csr", "--all")
	n.Must(err)
	n.Await("the request", func() bool { return len(n.requests()) == 1 })
	for name := range n.requests() {
		if _, same := first[name]; !same {
			t.Errorf("the request %s is another than %v", name, first)
		}
	}
	n.Must(n.Approve(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, ca)
}

// forged is an identity of this node that the test made, valid until then.
func forged(t *testing.T, n *node, by *testpki.Authority, until time.Time) []byte {
	t.Helper()
	pair := by.Issue(x509.Certificate{Subject: pkix.Name{CommonName: "node-cert-agent:node:node",
		Organization: []string{"node-cert-agent:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return slices.Concat(pair.Cert, pair.Key, notes(t, n.File(identityFile)))
}

func TestACertificateThatExpiredWhileTheAgentWasStopped(t *testing.T) {
	n := identified(t)
	n.Run("systemctl", "stop", "node-cert-agent.service")
	n.Run("rm", "-f", stateDir+"identity.previous.pem")
	n.replaceIdentity(forged(t, n, n.Plane.CA(), time.Now().Add(-time.Minute)))
	n.Must(n.PutToken("20-token", "token1"))
	n.Run("systemctl", "start", "node-cert-agent.service")
	n.AwaitApproved()
	n.follows()
	n.AwaitRecord(audit.IdentitySuspect)
}

func TestATokenThatEndedIsReplacedByAFileWhileRunning(t *testing.T) {
	n := start(t, cluster.Options{Bootstrap: true, Config: patientConfig})
	ca := testpki.NewCA("first")
	n.create(kubeletCA(ca))
	n.Must(n.PutToken("10-ended", "ended1"))
	n.Must(n.StartAgent(n.Ctx))
	n.Await("a reason", func() bool {
		return strings.Contains(n.Status().Reason, "no credential: 10-ended.kubeconfig: the server answered 401")
	})
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("20-good", "token1"))
	n.AwaitApproved()
	n.AwaitFile(cluster.KubeletCA, ca)
	n.noSecrets()
}

func TestBadBootstrapFilesAreNamedAndTheNextIsTried(t *testing.T) {
	n := start(t, cluster.Options{Bootstrap: true, Config: patientConfig})
	n.create(kubeletCA(testpki.NewCA("first")))
	n.Must(n.MakeToken(n.Ctx, "token1"))
	for name, bad := range map[string]host.File{
		"10-garbage": {Data: []byte("{"), Mode: 0o600},
		"20-exec": {Data: []byte("clusters: []\nusers: [{name: u, user: {exec: {command: /bin/sh, args: [" +
			cluster.TokenSecret + "]}}}]\n"), Mode: 0o600},
		"30-open":    {Data: []byte("clusters: []\n"), Mode: 0o644},
		"31-foreign": {Data: []byte("clusters: []\n"), Mode: 0o600},
	} {
		n.Must(n.Host.PutFile(cluster.BootstrapDir+"/"+name+".kubeconfig", bad))
	}
	n.Run("chown", "nobody", cluster.BootstrapDir+"/31-foreign.kubeconfig")
	n.Must(n.PutToken("40-good", "token1"))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitApproved()
	for _, file := range []string{"10-garbage", "20-exec", "30-open", "31-foreign"} {
		n.AwaitRecord(audit.CredentialRefused, "NODECERT_CREDENTIAL="+file+".kubeconfig")
	}
	if left := n.Run("ls",
		cluster.BootstrapDir); left != "10-garbage.kubeconfig\n20-exec.kubeconfig\n30-open.kubeconfig\n31-foreign.kubeconfig" {
		t.Errorf("left in the bootstrap directory: %s", left)
	}
	n.noSecrets()
}

func TestARolledClientCAIsNoticedAndRecovered(t *testing.T) {
	trusted := filepath.Join(t.TempDir(), "client-ca.crt")
	n := start(t, cluster.Options{Bootstrap: true, Config: patientConfig,
		Plane: controlplane.Options{APIServerOff: true, APIServerArgs: []string{"--client-ca-file=" + trusted}}})
	old := testpki.New("old-client-ca", testpki.ECDSA)
	n.Must(os.WriteFile(trusted, append(n.Plane.CA().PEM(), old.PEM()...), 0o600))
	n.Must(n.Plane.StartAPIServer(n.Ctx))
	n.Must(n.Prepare(n.Ctx))
	n.create(kubeletCA(testpki.NewCA("first")))
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("10-token", "token1"))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitApproved()
	n.Run("systemctl", "stop", "node-cert-agent.service")
	n.Run("rm", "-f", stateDir+"identity.previous.pem")
	n.replaceIdentity(forged(t, n, old, time.Now().Add(24*time.Hour)))
	n.Run("systemctl", "start", "node-cert-agent.service")
	n.awaitState("following") // with a certificate of the old CA
	n.Must(n.PutToken("20-token", "token1"))

	n.Must(os.WriteFile(trusted, n.Plane.CA().PEM(), 0o600))
	n.awaitIdentity("suspect")
	n.AwaitApproved()
	n.follows()
}

func TestDamagedIdentityFilesAreSurvived(t *testing.T) {
	n := identified(t)
	good := n.File(identityFile)
	other := n.Plane.CA().Client("node-cert-agent:node:node", "node-cert-agent:nodes")
	certificate, _, _ := bytes.Cut(good, []byte("-----BEGIN PRIVATE KEY"))
	for sentence, damaged := range map[string][]byte{
		"truncated":                    good[:len(good)/2],
		"empty":                        {},
		"a key of another certificate": slices.Concat(certificate, other.Key, notes(t, good)),
	} {
		n.Run("systemctl", "stop", "node-cert-agent.service")
		n.Must(n.Host.PutFile(stateDir+"identity.previous.pem", host.File{Data: good, Mode: 0o600}))
		n.Run("chown", "node-cert-agent:node-cert-agent", stateDir+"identity.previous.pem")
		n.replaceIdentity(damaged)
		lost := n.Records(audit.IdentityLost)
		n.Run("systemctl", "start", "node-cert-agent.service")
		n.Await("following again, after "+sentence, func() bool {
			return n.Records(audit.IdentityLost) > lost && n.Status().State == "following"
		})
		n.follows()
	}
	n.Run("systemctl", "stop", "node-cert-agent.service")
	n.replaceIdentity(good[:10])
	n.Run("rm", stateDir+"identity.previous.pem")
	n.Must(n.PutToken("20-token", "token1"))
	n.Run("systemctl", "start", "node-cert-agent.service")
	n.AwaitApproved()
	n.follows()
}

func TestAClusterThatWasOffPastEveryExpiryIsJoinedAgainThroughTheKubelet(t *testing.T) {
	n := start(t, cluster.Options{Bootstrap: true, Config: strings.Replace(patientConfig, "followHint: always",
		"followHint: always, kubeletIdentity: true", 1)})
	n.create(kubeletCA(testpki.NewCA("first")))
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("10-token", "token1"))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitApproved()
	n.AwaitRecord(audit.CredentialConsumed)
	n.Must(n.RevokeToken(n.Ctx, "token1")) // as its expiry does
	if left := n.Run("ls", cluster.BootstrapDir); left != "" {
		t.Fatalf("left in the bootstrap directory: %s", left)
	}

	// Everything goes off, and comes back after the last certificate of ours has ended: the host first, the
	// kubelet's certificate renewed, the API server later.
	n.Run("systemctl", "stop", "node-cert-agent.service")
	n.Must(n.Plane.StopAPIServer(n.Ctx, syscall.SIGKILL))
	for _, file := range []string{identityFile, stateDir + "identity.previous.pem"} {
		n.Must(n.Host.PutFile(file, host.File{Data: forged(t, n, n.Plane.CA(), time.Now().Add(-time.Minute)), Mode: 0o600}))
		n.Run("chown", "node-cert-agent:node-cert-agent", file)
	}
	pair := n.Plane.CA().Client("system:node:node", "system:nodes")
	const pki = "/var/lib/kubelet/pki/"
	n.Must(n.Host.PutFile(pki+"kubelet-client-now.pem", host.File{Data: slices.Concat(pair.Cert, pair.Key), Mode: 0o600}))
	n.Run("ln", "-s", "kubelet-client-now.pem", pki+"kubelet-client-current.pem")
	n.Run("systemctl", "start", "node-cert-agent.service")
	n.awaitState("unreachable")
	if i := n.Status().Identity; i == nil || i.Serial == "" {
		t.Errorf("the identity was given up without a word of the API server: %+v", i)
	}
	n.Must(n.Plane.StartAPIServer(n.Ctx))
	n.AwaitRecord(audit.IdentitySuspect)
	n.AwaitApproved()
	n.follows()
	n.AwaitRecord(audit.RequestCreated, "NODECERT_CREDENTIAL=the kubelet")
	n.noSecrets()
}

func TestANodeReportsItsStateToTheCluster(t *testing.T) {
	n := start(t, cluster.Options{Bootstrap: true, Config: patientConfig})
	n.Must(n.Plane.InstallShipped(n.Ctx))
	ca := testpki.NewCA("first")
	n.create(kubeletCA(ca))
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("10-token", "token1"))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitApproved()
	n.AwaitFile(cluster.KubeletCA, ca)
	get := func(path string) string {
		out, _ := n.Plane.Kubectl(n.Ctx, "get", "nodecertificatestates", "node", "-o", "jsonpath={"+path+"}")
		return out
	}
	want := plan.DigestOf(ca).String()
	n.Await("the state object", func() bool {
		return get(".status.state") == "following" && get(".status.files[0].sha256") == want
	})
	if i := n.Status().Identity; i == nil || get(".status.identity.publicKey") != i.PublicKey ||
		get(".status.identity.serial") != i.Serial {
		t.Errorf("the ControllerConfig says of the identity %s, the status %+v", get(".status.identity"), i)
	}
	line, err := n.Plane.Kubectl(n.Ctx, "get", "nodecertificatestates", "--no-headers")
	n.Must(err)
	if !strings.HasPrefix(line, "node") || strings.Count(line, "\n") != 1 || !strings.Contains(line, "following") {
		t.Errorf("kubectl shows %q", line)
	}
}
