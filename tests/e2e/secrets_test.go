// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// secretsOfAKey are a line of the key's PEM, and its number.
func (n *node) secretsOfAKey(file []byte) []string {
	n.T.Helper()
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "PRIVATE KEY" {
			continue
		}
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		n.Must(err)
		number, err := key.(*ecdsa.PrivateKey).Bytes()
		n.Must(err)
		return []string{string(bytes.Split(pem.EncodeToMemory(block), []byte("\n"))[2]), string(number)}
	}
	n.T.Fatal("a file without a key")
	return nil
}

// says runs a command of the agent and returns all it prints, whatever its exit code.
func (n *node) says(words string) string {
	n.T.Helper()
	return n.Run("sh", "-c", "node-cert-agent "+words+" 2>&1 || true")
}

// TestNoSecretLeavesItsOwnFile plants a secret of each kind, leads the agent through all sorts of trouble
// with them, has both its processes crash, and searches everything that others may come to see.
func TestNoSecretLeavesItsOwnFile(t *testing.T) {
	const password, inBundle = "kennwort-3b9d-11aa", "/root/key-inside.pem"
	ca := testpki.NewCA("a")
	n := start(t, cluster.Options{API: controllerconfig.OpenShift, Bootstrap: true,
		Host: host.Options{Files: openShiftFiles(ca)},
		Config: openShift + "node: {name: node}\nbootstrap: {pollInterval: 200ms, idlePollInterval: 1s}\n" +
			"identity: {approvalPollMax: 1s, checkInterval: 2s, " +
			"suspectAfter: 3s, deniedMin: 2s, deniedMax: 4s}\n"})
	n.Must(n.Plane.InstallShipped(n.Ctx))
	n.prepareOpenShift()
	n.publishCA(ca)
	good := controllerconfig.PullSecret("puller", password)
	n.create(controllerconfig.Spec{KubeAPIServerServingCAData: ca, RootCAData: ca, InternalRegistryPullSecret: good})
	n.Must(n.MakeToken(n.Ctx, "token1"))
	bad := func(name, content string) {
		n.Must(n.Host.PutFile(cluster.BootstrapDir+"/"+name+".kubeconfig", host.File{Data: []byte(content), Mode: 0o600}))
	}
	bad("10-no-yaml", "users: ['"+cluster.TokenSecret)
	bad("11-exec", "users: [{name: u, user: {exec: {command: /bin/sh, args: ["+cluster.TokenSecret+"]}}}]\n")
	bad("12-misplaced", "users: [{name: u, user: {token1."+cluster.TokenSecret+": token}}]\n")
	n.Must(n.PutToken("13-unknown", "ghost1"))
	n.Must(n.PutToken("40-good", "token1"))
	n.Must(n.StartAgent(n.Ctx))
	n.awaitIdentity("pending")
	keys := n.secretsOfAKey(n.File(stateDir + "pending/key.pem"))
	n.Must(n.Deny(n.Ctx))
	n.AwaitRecord(audit.RequestDenied)
	n.AwaitApproved()
	keys = append(keys, n.secretsOfAKey(n.File(identityFile))...)

	// What the ControllerConfig carries, good and bad.
	pair := n.Plane.CA().Client("somebody")
	keys = append(keys, n.secretsOfAKey(pair.Key)...)
	n.AwaitFile(pullSecret, append(slices.Clone(good), '\n'))
	n.awaitVersion(n.patch(controllerconfig.Spec{KubeAPIServerServingCAData: slices.Concat(ca, pair.Key),
		InternalRegistryPullSecret: []byte(`{"auths":{"` + password + `":{"auth":"` + password + `"}}}`),
		ImageRegistryBundleData:    []controllerconfig.Registry{{File: "r", Data: pair.Key}}}))
	n.Await("refusals", func() bool { return len(n.Status().Refused) == 3 })
	n.Must(n.Host.PutFile(bootstrapKubeconfig, host.File{Data: []byte("users: [{user: {token: " + nodeToken +
		"}}]\nclusters: ['\n"), Mode: 0o600}))
	n.Await("a kubeconfig that cannot be edited", func() bool { return len(n.Status().Refused) == 4 })

	// What people do by hand.
	n.put(inBundle, string(ca)+string(pair.Key))
	n.put("/root/secret.json", string(good[:len(good)-1]))
	n.put("/root/other.json", string(controllerconfig.PullSecret("puller", password+"-by-hand")))
	said := n.says("apply --field kubeAPIServerServingCAData -f "+inBundle) +
		n.says("apply --field internalRegistryPullSecret -f /root/secret.json") +
		n.says("diff --field internalRegistryPullSecret -f /root/other.json") +
		n.says("apply --field internalRegistryPullSecret -f /root/other.json") +
		n.says("status") + n.says("status -o json") + n.says("certs") + n.says("certs -o json") + n.says("check") +
		n.says("check -o json") + n.says("diff")
	if strings.Count(said, "refuse  ") < 3 || !strings.Contains(said, "write   "+pullSecret) {
		t.Errorf("the commands did not come across what they should:\n%s", said)
	}

	n.Await("the report of the refusals", func() bool {
		out, _ := n.Plane.Kubectl(n.Ctx, "get", "nodecertificatestates", "node", "-o", "jsonpath={.status.identity.publicKey}")
		return out != ""
	})

	// What is left of the dead.
	n.Run("touch", "/run/before")
	for _, signal := range []string{"QUIT", "ABRT", "SEGV"} {
		before := n.Status().Since
		n.Run("systemctl", "kill", "-s", signal, "node-cert-agent.service", "node-cert-agent-writer.service")
		n.Await("another start after SIG"+signal, func() bool {
			s := n.Status()
			return s.Since.After(before) && s.State == "following"
		})
	}
	if cores := n.Run("find", "/", "-xdev", "-newer", "/run/before", "-iname", "*core*", "-type", "f", "-size",
		"+100k"); cores != "" {
		t.Errorf("core dumps are left: %s", cores)
	}
	n.Run("systemctl", "stop", "node-cert-agent.service")
	said += n.says("reset") + n.says("bootstrap --timeout 3s")
	keys = append(keys, n.secretsOfAKey(n.File(stateDir+"pending/key.pem"))...)

	api, err := n.Plane.Kubectl(n.Ctx, "get", "nodecertificatestates,csr,events", "-A", "-o", "json")
	n.Must(err)
	processes := n.Run("sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
	for _, secret := range append([]string{cluster.TokenSecret, nodeToken, password}, keys...) {
		for what, text := range map[string]string{"a command": said, "the API": api, "a process": processes} {
			n.hides(what, text, secret)
		}
	}
	found := []int{n.wantNowhere(cluster.TokenSecret, cluster.BootstrapDir),
		n.wantNowhere(nodeToken, bootstrapKubeconfig, kubeletKubeconfig, "/run/kubelet.loaded"),
		n.wantNowhere(password, pullSecret, stateDir+"blobs/", stateDir+"operator/applied.json")}
	if slices.Contains(found, 0) {
		t.Errorf("the search is blind: it found %v files that hold the secrets", found)
	}
	for _, key := range keys {
		n.wantNowhere(key, stateDir+"identity.", stateDir+"pending/")
	}
}
