// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// manifest is a ControllerConfig as a person has it in a file.
func (r *tree) manifest(kubeletCA []byte) string {
	r.Helper()
	name := r.path("/controllerconfig.yaml")
	save(r.T, name, fmt.Sprintf(`# by hand
apiVersion: node-cert-agent.io/v1alpha1
kind: ControllerConfig
metadata: {name: machine-config-controller}
spec:
  kubeAPIServerServingCAData: %s
  imageRegistryBundleData:
  - {file: registry..5000, data: %s}
`, base64.StdEncoding.EncodeToString(kubeletCA), base64.StdEncoding.EncodeToString(kubeletCA)))
	return name
}

func TestApplyFillsATreeAndLeavesNothingThatWouldWinLater(t *testing.T) {
	r, a := newTree(t), ca("a")
	file := r.manifest(a)
	if o := r.command("diff", "-f", file); o.code != exitPending || !strings.Contains(o.stdout, "write   "+kubeletCA) {
		t.Errorf("diff exits with %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if r.file(kubeletCA) != "" {
		t.Fatal("diff wrote the file")
	}
	if o := r.command("apply", "-f", file); o.code != 0 || !strings.HasSuffix(o.stdout, "applied\n") {
		t.Fatalf("apply exits with %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if r.file(kubeletCA) != string(a) || r.file("/etc/docker/certs.d/registry:5000/ca.crt") != string(a) {
		t.Error("the files do not hold what was applied")
	}
	if o := r.command("apply", "-f", file, "--dry-run"); o.code != 0 || o.stdout != "nothing to do\n" {
		t.Errorf("again, dry: %d %s%s", o.code, o.stdout, o.stderr)
	}
	if _, err := os.Stat(r.path("/var/lib/node-cert-agent/operator/applied.json")); !os.IsNotExist(err) {
		t.Errorf("the tree holds the local override: %v", err)
	}
}

func TestAServiceThatRunsCarriesOutWhatIsApplied(t *testing.T) {
	r, a, b := newTree(t), ca("a"), ca("b")
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": a})
	r.start()
	r.awaitFile(kubeletCA, a)
	if o := r.command("apply", "-f", r.manifest(b)); o.code != 0 || !strings.HasSuffix(o.stdout, "applied\n") {
		t.Fatalf("apply exits with %d: %s%s", o.code, o.stdout, o.stderr)
	}
	r.awaitFile(kubeletCA, b)
	if s := r.command("status"); !strings.Contains(s.stdout, "in force") {
		t.Errorf("status says %s", s.stdout)
	}
	if o := r.command("apply", "--revert"); o.code != 0 || !strings.HasPrefix(o.stdout, "reverted") {
		t.Errorf("revert: %d %s%s", o.code, o.stdout, o.stderr)
	}
	r.awaitFile(kubeletCA, a)
}

func TestBareContentIsForTheFieldThatIsNamed(t *testing.T) {
	r, a := newTree(t), ca("a")
	save(t, r.path("/a.pem"), string(a))
	for sentence, c := range map[string]struct {
		args []string
		code int
		file string
	}{
		"a bundle for a field": {[]string{"--field", "rootCAData"}, 0, "/etc/kubernetes/ca.crt"},
		"a CA for a registry": {[]string{"--field", "imageRegistryBundleUserData", "--entry", "quay.io"}, 0,
			"/etc/docker/certs.d/quay.io/ca.crt"},
		"a field that there is not":          {[]string{"--field", "shadow"}, process.Usage, ""},
		"an entry for a field with one file": {[]string{"--field", "rootCAData", "--entry", "x"}, process.Usage, ""},
		"no entry for a registry field":      {[]string{"--field", "imageRegistryBundleUserData"}, process.Usage, ""},
		"an entry that leaves its place": {[]string{"--field", "imageRegistryBundleUserData", "--entry", "../x"},
			process.Failed, ""},
		"an entry without a field":            {[]string{"--entry", "x"}, process.Usage, ""},
		"content that is no ControllerConfig": {nil, process.Failed, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := r.command(append([]string{"apply", "-f", r.path("/a.pem")}, c.args...)...)
			if o.code != c.code || c.file != "" && r.file(c.file) != string(a) {
				t.Errorf("exits with %d, want %d: %s%s", o.code, c.code, o.stdout, o.stderr)
			}
		})
	}
}

func TestApplyRefusesWhatTheAgentWouldRefuse(t *testing.T) {
	r := newTree(t)
	save(t, r.path("/bad.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n")
	o := r.command("apply", "-f", r.path("/bad.pem"), "--field", "kubeAPIServerServingCAData")
	if o.code != process.Failed || !strings.Contains(o.stdout, "refuse  kubeAPIServerServingCAData") ||
		!strings.Contains(o.stderr, "nothing in the input can be used") {
		t.Errorf("exits with %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if o := r.command("apply"); o.code != process.Usage {
		t.Errorf("without input: %d", o.code)
	}
	var out bytes.Buffer
	cmd := root()
	cmd.SetArgs([]string{"apply", "--root", r.root, "-f", "-", "--field", "kubeAPIServerServingCAData"})
	cmd.SetIn(bytes.NewReader(ca("a")))
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil || r.file(kubeletCA) == "" {
		t.Errorf("from standard input: %v\n%s", err, &out)
	}
}

func TestAPauseIsSaidWithATimeAndAReasonAndSeenByTheService(t *testing.T) {
	r := newTree(t)
	if o := r.command("pause", "--for", "2h", "x"); o.code != process.Failed ||
		!strings.Contains(o.stderr, "hint: systemd makes it") {
		t.Errorf("before the first start: %d %s", o.code, o.stderr)
	}
	r.start()
	r.awaitStatus("the start", func(s report.Status) bool { return s.State != "" })
	for _, args := range [][]string{{"pause", "storage"}, {"pause", "--for", "2h"}, {"pause", "--for", "1000h", "x"},
		{"pause", "--for", "-1s", "x"}} {
		if o := r.command(args...); o.code != process.Usage {
			t.Errorf("%q exits with %d", args, o.code)
		}
	}
	if o := r.command("pause", "--for", "2h", "upgrade", "of", "the", "storage"); o.code != 0 ||
		!strings.HasPrefix(o.stdout, "paused until ") {
		t.Fatalf("pause: %d %s%s", o.code, o.stdout, o.stderr)
	}
	r.awaitStatus("the pause", func(s report.Status) bool {
		return strings.HasPrefix(s.Paused, "upgrade of the storage (until ")
	})
	if o := r.command("resume"); o.code != 0 || o.stdout != "resumed\n" {
		t.Errorf("resume: %d %s%s", o.code, o.stdout, o.stderr)
	}
	r.awaitStatus("the end of it", func(s report.Status) bool { return s.Paused == "" })
	if o := r.command("resume"); o.stdout != "it was not paused\n" {
		t.Errorf("resume again: %s", o.stdout)
	}
}

func TestWhatMayNotGoAtOnceGoesWhenAnOperatorSaysSo(t *testing.T) {
	r, a := newTree(t), ca("a")
	save(t, r.path(fragment), "apiVersion: config.node-cert-agent.io/v1alpha1\nwatch: {retryJitter: 1ms, retryMax: "+
		"100ms}\ntrust: {source: \"\"}\n")
	if o := r.command("apply", "--now"); o.code != process.Failed || !strings.Contains(o.stderr, errNoState.Error()) {
		t.Errorf("before the first start: %d %s", o.code, o.stderr)
	}
	list := func(names ...string) map[string]any {
		all := []any{}
		for _, name := range names {
			all = append(all, map[string]any{"file": name, "data": a})
		}
		return map[string]any{"imageRegistryBundleData": all}
	}
	file := func(name string) string { return "/etc/docker/certs.d/" + name + "/ca.crt" }
	r.api.publish(list("r", "s", "u"))
	running := r.start()
	r.awaitFile(file("u"), a)
	r.awaitVersion(r.api.publish(list("r"))) // a mistyped name upstream looks like this
	if held := r.status().Held; len(held) != 2 || !strings.Contains(held[0].Reason,
		"'node-cert-agent apply --now' confirms it") {
		t.Fatalf("held are %+v", held)
	}
	if o := r.command("apply", "--now"); o.code != 0 || o.stdout != "applied\n" {
		t.Errorf("apply --now: %d %s%s", o.code, o.stdout, o.stderr)
	}
	if r.file(file("r")) != string(a) || r.file(file("s"))+r.file(file("u")) != "" || len(r.status().Held) != 0 {
		t.Errorf("what is held: %+v", r.status().Held)
	}
	// The word was about this; what is dropped later has to be confirmed anew.
	r.api.publish(list("r", "s", "u"))
	r.awaitFile(file("u"), a)
	r.awaitVersion(r.api.publish(list("r")))
	if len(r.status().Held) != 2 || r.file(file("s")) != string(a) {
		t.Errorf("held are %+v", r.status().Held)
	}
	running.stop()
	running.ended <- <-running.ended
	if o := r.command("apply", "--now"); o.code != process.Failed || !strings.Contains(o.stderr, errNoService.Error()) {
		t.Errorf("without a service: %d %s", o.code, o.stderr)
	}
}

func TestAConfirmationKeepsWhatWasAppliedByHand(t *testing.T) {
	r, a, b := newTree(t), ca("a"), ca("b")
	save(t, r.path(fragment), "apiVersion: config.node-cert-agent.io/v1alpha1\nwatch: {retryJitter: 1ms, retryMax: "+
		"100ms}\ntrust: {source: \"\"}\n")
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": a})
	r.start()
	r.awaitFile(kubeletCA, a)
	if o := r.command("apply", "-f", r.manifest(b)); o.code != 0 {
		t.Fatalf("apply: %d %s%s", o.code, o.stdout, o.stderr)
	}
	r.awaitFile(kubeletCA, append(bytes.Clone(b), a...))
	if o := r.command("apply", "--now"); o.code != 0 || r.file(kubeletCA) != string(b) {
		t.Errorf("apply --now: %d %s%s", o.code, o.stdout, o.stderr)
	}
	if s := r.status().Override; s == nil || s.Source != r.path("/controllerconfig.yaml") {
		t.Errorf("by hand is %+v", s)
	}
}

func TestAManifestMayBeJSONAndComeFromStandardInput(t *testing.T) {
	r, a := newTree(t), ca("a")
	apply := func(input string, args ...string) (string, error) {
		var out bytes.Buffer
		cmd := root()
		cmd.SetArgs(append([]string{"apply", "--root", r.root, "-f", "-"}, args...))
		cmd.SetIn(strings.NewReader(input))
		cmd.SetOut(&out)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	manifest := fmt.Sprintf(`{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig", "spec": {"kubeAPIServerServingCAData": %q}}`,
		base64.StdEncoding.EncodeToString(a))
	before := r.snapshot()
	out, err := apply(manifest, "--dry-run")
	if e := (process.Exit{}); !errors.As(err, &e) || e.Code != exitPending || !strings.Contains(out, "write   "+kubeletCA) {
		t.Errorf("dry: %v\n%s", err, out)
	}
	if after := r.snapshot(); after != before {
		t.Error("a dry run changed something")
	}
	if out, err := apply(manifest); err != nil || r.file(kubeletCA) != string(a) {
		t.Errorf("JSON from standard input: %v\n%s", err, out)
	}
	for _, twice := range [][]string{{"--revert"}, {"--now", "--revert"}} {
		if _, err := apply(manifest, twice...); err == nil {
			t.Errorf("%q beside -f is accepted", twice)
		}
	}
}
