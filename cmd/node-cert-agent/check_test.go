// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/check"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// fewFields are those whose directories a tree has.
const fewFields = "node: {name: node-1}\nfiles: {cloudProviderCAData: {enabled: false}, additionalTrustBundle: " +
	"{enabled: " +
	"false}}\n"

const goodTree = `ok    configuration: valid; from builtin:standalone.yaml, ROOT/etc/node-cert-agent/config.d/50-site.yaml
ok    profile: standalone
ok    node name: node-1
ok    directory: /etc/kubernetes
ok    directory: /etc/docker/certs.d
ok    files: 2 managed files in place
ok    service: following
ok    identity: without a certificate, from a kubeconfig that something else maintains
ok    API server: SERVER knows us as tester
ok    ControllerConfig: controllerconfigs.node-cert-agent.io machine-config-controller may be read
ok    clock: as the API server's
`

// synced is a tree with an agent that has done its work.
func synced(t *testing.T) *tree {
	t.Helper()
	r := newTree(t)
	r.configure(fewFields)
	v := r.api.publish(map[string]any{"kubeAPIServerServingCAData": ca("a"),
		"imageRegistryBundleData": []map[string]any{{"file": "registry.example..5000", "data": ca("b\x1b[31m")}}})
	r.start()
	r.awaitVersion(v)
	return r
}

func (r *tree) check(args ...string) outcome {
	r.Helper()
	return r.command(append([]string{"check", "--kubeconfig", r.kubeconfig}, args...)...)
}

// lines are the findings at a level.
func (o outcome) lines(level string) []string {
	return regexp.MustCompile("(?m)^"+level+" .*$(?:\\n      fix: .*$)?").FindAllString(o.stdout, -1)
}

func TestCheckBesideARunningAgentIsAllOK(t *testing.T) {
	r := synced(t)
	o := r.check()
	have := strings.NewReplacer(r.root, "ROOT", strings.TrimPrefix(r.api.URL, "https://"), "SERVER").Replace(o.stdout)
	if o.code != 0 || have != goodTree || o.stderr != "" {
		t.Errorf("it exits with %d, says %q and prints\n%s\nwant\n%s", o.code, o.stderr, have, goodTree)
	}
	var all struct{ Findings []check.Finding }
	if j := r.check("-o", "json"); j.code != 0 || json.Unmarshal([]byte(j.stdout), &all) != nil ||
		len(all.Findings) != strings.Count(goodTree, "\n") || all.Findings[1] != (check.Finding{Level: check.OK,
		What: "profile", Fact: "standalone"}) {
		t.Errorf("as JSON it exits with %d and prints\n%s", j.code, j.stdout)
	}
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(r *tree) error
		level  string
		code   int
		want   string
	}{
		"a directory is missing": {func(r *tree) error { return os.RemoveAll(r.path("/etc/docker/certs.d")) }, "warn", 0,
			"warn  directory: /etc/docker/certs.d: does not exist; for imageRegistryBundleData, imageRegistryBundleUserData" +
				"\n      fix: make it, or turn off what goes there: `files: {imageRegistryBundleData: {enabled: false}, " +
				"imageRegistryBundleUserData: {enabled: false}}`"},
		"a private key lies beside a bundle": {func(r *tree) error {
			return os.WriteFile(r.path("/etc/kubernetes/kubelet-ca.key"), nil, 0o600)
		}, "warn", 0,
			"warn  file: /etc/kubernetes/kubelet-ca.crt is not written: beside a private key, kubelet-ca.key\n      fix: give " +
				"it " +
				"another path: `files: {kubeAPIServerServingCAData: {path: PATH}}`, or move what is in the way"},
		"the machine config daemon was here": {func(r *tree) error {
			return errors.Join(os.Mkdir(r.path("/etc/machine-config-daemon"), 0o755),
				os.WriteFile(r.path("/etc/machine-config-daemon/currentconfig"), nil, 0o600))
		}, "warn", 0,
			"warn  profile: standalone, and the machine config daemon manages this host: both may write the same files\n      " +
				"fix: " +
				"set `profile: openshift`"},
		"kubeadm was here": {func(r *tree) error {
			return errors.Join(os.MkdirAll(r.path("/var/lib/kubelet"), 0o755),
				os.WriteFile(r.path("/var/lib/kubelet/kubeadm-flags.env"), nil, 0o600))
		}, "warn", 0, "warn  profile: standalone, and kubeadm made this node\n      fix: set `profile: kubeadm`"},
		"the API server is down": {func(r *tree) error { r.api.Close(); return nil }, "fail", process.Failed,
			"fail  API server: SERVER does not answer: dial SERVER: connect: connection refused\n      fix: look at the " +
				"network and " +
				"at the API server; files stay as they are until it answers"},
		"the API server knows no such kind": {func(r *tree) error {
			r.configure(fewFields + "controllerConfig: {version: v2}\n")
			return nil
		}, "fail", process.Failed,
			"fail  ControllerConfig: the server has no controllerconfigs.node-cert-agent.io machine-config-controller, which is what " +
				"profile standalone watches\n      fix: choose the profile of this cluster, or install the kind: kubectl apply -k " +
				"packaging/kubernetes"},
		"there is no object": {func(r *tree) error { r.api.change(func() { r.api.spec = nil }); return nil }, "warn", 0,
			"warn  ControllerConfig: controllerconfigs.node-cert-agent.io machine-config-controller does not exist\n      fix: create " +
				"it, or " +
				"configure its name"},
		"there is no identity": {func(r *tree) error { return os.Remove(r.kubeconfig) }, "fail", process.Failed,
			"fail  identity: kubeconfig ROOT/etc/node-cert-agent/kubeconfig: no such file or directory\n      fix: put a " +
				"kubeconfig " +
				"with a bootstrap token into /etc/node-cert-agent/bootstrap.d; node-cert-agent status says how far it is"},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newTree(t)
			r.configure(fewFields)
			r.api.publish(map[string]any{"kubeAPIServerServingCAData": ca("a")})
			server := strings.TrimPrefix(r.api.URL, "https://")
			if err := c.change(r); err != nil {
				t.Fatal(err)
			}
			before := r.snapshot()
			o := r.check()
			have := strings.NewReplacer(r.root, "ROOT", server, "SERVER").Replace(strings.Join(o.lines(c.level), "\n"))
			if o.code != c.code || have != c.want {
				t.Errorf("it exits with %d and prints\n%s\nwant %d and\n%s", o.code, o.stdout+o.stderr, c.code, c.want)
			}
			if r.snapshot() != before {
				t.Error("it changed the tree")
			}
		})
	}
}

func TestCheckOfAnInvalidConfigurationExitsWith2(t *testing.T) {
	r := newTree(t)
	r.configure("files:\n  rootCAData: {fiel: /x}\n")
	if o := r.check(); o.code != process.Usage || !strings.Contains(o.stderr, "files.rootCAData.fiel") || o.stdout != "" {
		t.Errorf("it exits with %d and says %s", o.code, o.stderr)
	}
}

// TestAnAllowlistThatIsTooWideIsRefusedWithFileAndLine goes through what must not come from a typing error
// or from somebody who means too well, by the ways that read configuration.
func TestAnAllowlistThatIsTooWideIsRefusedWithFileAndLine(t *testing.T) {
	r := newTree(t)
	for _, entry := range []string{
		"crio.service: {verb: restart}", "crio.service: {verb: start}", "crio.service: {verb: stop}",
		"crio.service: {verb: reboot}",
		"crio: {verb: reload}", "crio@.service: {verb: reload}", "cri*.service: {verb: reload}",
		"'crio?.service': {verb: reload}",
		"node-cert-agent.service: {verb: reload}", "node-cert-agent-writer.service: {verb: try-restart}",
		"reboot.target: {verb: reload}",
		"systemd-logind.service: {verb: try-restart}", "dbus.service: {verb: reload}", "dbus-broker.service: {verb: reload}",
		"init.scope: {verb: reload}",
		"polkit.service: {verb: try-restart}", "node-cert-agent-update-ca-trust.service: {verb: try-restart}",
	} {
		r.configure("units:\n  " + entry + "\n")
		tree := r.snapshot()
		for _, args := range [][]string{{"check"}, {"run", "--kubeconfig", r.kubeconfig},
			{"diff", "--kubeconfig", r.kubeconfig}} {
			o := r.command(args...)
			if want := r.path(fragment) + ":5: units."; o.code != process.Usage || !strings.Contains(o.stderr, want) ||
				o.stdout != "" {
				t.Errorf("%s: %q exits with %d, prints %q and says %q, want 2 and %q", entry, args, o.code, o.stdout, o.stderr,
					want)
			}
		}
		if r.snapshot() != tree {
			t.Errorf("%s: the tree changed", entry)
		}
	}
}

const certsTable = `FIELD                                          FILE                                              SUBJECT             SHA-256           NOT AFTER             KIND  WARNINGS
kubeAPIServerServingCAData                     /etc/kubernetes/kubelet-ca.crt                    CN=a                HEX               2099-01-02T03:04:05Z  CA
imageRegistryBundleData/registry.example:5000  /etc/docker/certs.d/registry.example:5000/ca.crt  CN=b\x1b[31m        HEX               2099-01-02T03:04:05Z  CA
`

func TestCertsListsWhatIsInTheManagedFiles(t *testing.T) {
	r := synced(t)
	o := r.command("certs", "--kubeconfig", r.kubeconfig)
	have := regexp.MustCompile(`[0-9a-f]{16}`).ReplaceAllString(o.stdout, "HEX             ")
	if o.code != 0 || regexp.MustCompile(` +`).ReplaceAllString(have,
		" ") != regexp.MustCompile(` +`).ReplaceAllString(certsTable, " ") {
		t.Errorf("it exits with %d, says %q and prints\n%s", o.code, o.stderr, have)
	}
	var all struct{ Certificates []certificate }
	j := r.command("certs", "-o", "json", "--kubeconfig", r.kubeconfig)
	if err := json.Unmarshal([]byte(j.stdout), &all); j.code != 0 || err != nil || len(all.Certificates) != 2 ||
		len(all.Certificates[0].Fingerprint) != 64 || !all.Certificates[0].CA {
		t.Errorf("as JSON it exits with %d and prints\n%s", j.code, j.stdout)
	}
}

func TestCertsSaysWhenTheAgentHasNone(t *testing.T) {
	r := newTree(t)
	before := r.snapshot()
	if o := r.command("certs"); o.code != 0 || !strings.Contains(o.stderr,
		"the agent's own certificate is not listed: this host has no identity yet") {
		t.Errorf("it exits with %d and says %q", o.code, o.stderr)
	}
	if r.snapshot() != before {
		t.Error("it changed the tree")
	}
}
