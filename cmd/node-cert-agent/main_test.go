// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/files"
	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/source"
	"github.com/node-cert-agent/node-cert-agent/agent/writer"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// printed makes output comparable: what differs from run to run becomes a word.
func printed(s string) string {
	for _, p := range [][2]string{{`\d{4}-\d\d-\d\dT[0-9:.]+Z`, "TIME"}, {`\(\d+s ago\)`, "(AGO)"},
		{`[0-9a-f]{64}`, "DIGEST"}, {`(?m)^(Node: +).*$`, "${1}NODE"}} {
		s = regexp.MustCompile(p[0]).ReplaceAllString(s, p[1])
	}
	return s
}

const statusTable = `State:             following (AGO)
Node:              NODE
ControllerConfig:  101
Synced:            TIME (AGO)
Agent:             0.0.0-dev

FILE                                              FIELD                       STATE     CERTIFICATES  FIRST EXPIRY  WARNINGS
/etc/kubernetes/kubelet-ca.crt                    kubeAPIServerServingCAData  in place  1             2099-01-02
/etc/docker/certs.d/registry.example:5000/ca.crt  imageRegistryBundleData     in place  1             2099-01-02    text outside blocks

REFUSED     WHY
rootCAData  holds no certificate
`

const statusJSON = `{
  "apiVersion": "status.node-cert-agent.io/v1alpha1",
  "version": "0.0.0-dev",
  "node": "node-1",
  "state": "following",
  "since": "TIME",
  "controllerConfig": {
    "uid": "0b0e",
    "resourceVersion": "101"
  },
  "synced": "TIME",
  "files": [
    {
      "field": "kubeAPIServerServingCAData",
      "path": "/etc/kubernetes/kubelet-ca.crt",
      "sha256": "DIGEST",
      "state": "in place",
      "certificates": 1,
      "fingerprints": [
        "DIGEST"
      ],
      "expires": "TIME"
    },
    {
      "field": "imageRegistryBundleData",
      "name": "registry.example:5000",
      "path": "/etc/docker/certs.d/registry.example:5000/ca.crt",
      "sha256": "DIGEST",
      "state": "in place",
      "certificates": 1,
      "fingerprints": [
        "DIGEST"
      ],
      "expires": "TIME",
      "warnings": [
        "text outside blocks"
      ]
    }
  ],
  "refused": [
    {
      "field": "rootCAData",
      "reason": "holds no certificate"
    }
  ],
  "writes": 2,
  "actions": {
    "succeeded": 0,
    "failed": 0
  }
}
`

func TestThePublishedBundleReachesItsFileAndStatusTells(t *testing.T) {
	r := newTree(t)
	r.configure("node: {name: node-1}\nfiles: {cloudProviderCAData: {enabled: false}, additionalTrustBundle: {enabled: " +
		"false}}\n")
	a, b := ca("a"), ca("b")
	commented := append(slices.Clone(b), "text outside blocks\n"...)
	v := r.api.publish(map[string]any{"kubeAPIServerServingCAData": a, "rootCAData": []byte("no PEM"),
		"imageRegistryBundleData": []map[string]any{{"file": "registry.example..5000", "data": commented}}})
	r.start()
	r.awaitVersion(v)
	if r.file(kubeletCA) != string(a) || r.file("/etc/docker/certs.d/registry.example:5000/ca.crt") != string(b) {
		t.Error("the files are not the certificates that were published, and nothing else")
	}
	if _, err := os.Stat(r.path("/etc/kubernetes/ca.crt")); !os.IsNotExist(err) {
		t.Errorf("the refused file has a file: %v", err)
	}

	table := r.command("status")
	if table.code != 0 || printed(table.stdout) != statusTable {
		t.Errorf("status exits with %d and prints\n%s\nwant\n%s", table.code, printed(table.stdout), statusTable)
	}
	asJSON := r.command("status", "-o", "json")
	if asJSON.code != 0 || asJSON.stdout != r.file("/run/node-cert-agent/status.json") {
		t.Errorf("status -o json exits with %d and prints\n%s", asJSON.code, asJSON.stdout)
	}
	if printed(asJSON.stdout) != statusJSON {
		t.Errorf("status.json is\n%s\nwant\n%s", printed(asJSON.stdout), statusJSON)
	}
}

func TestDiffShowsChangesAndMakesNone(t *testing.T) {
	r := newTree(t)
	a := ca("a")
	v := r.api.publish(map[string]any{"kubeAPIServerServingCAData": a})
	before := r.snapshot()
	d := r.command("diff", "--kubeconfig", r.kubeconfig)
	if want := "write   /etc/kubernetes/kubelet-ca.crt (kubeAPIServerServingCAData: missing)\n  + "; d.code != exitPending || !strings.HasPrefix(d.stdout, want) || !strings.Contains(d.stdout, "CN=a, until 2099-01-02") {
		t.Errorf("diff exits with %d and prints\n%s", d.code, d.stdout)
	}
	if after := r.snapshot(); after != before {
		t.Errorf("diff changed the tree from\n%s\nto\n%s", before, after)
	}
	r.start()
	r.awaitVersion(v)
	if d := r.command("diff", "--kubeconfig", r.kubeconfig); d.code != 0 || d.stdout != "nothing to do\n" {
		t.Errorf("with all done, diff exits with %d and prints\n%s%s", d.code, d.stdout, d.stderr)
	}
}

func TestInvalidConfigurationIsNamedAndChangesNothing(t *testing.T) {
	r := newTree(t)
	r.configure("files:\n  rootCAData: {fiel: /etc/kubernetes/ca.crt}\n")
	r.api.publish(map[string]any{"rootCAData": ca("a")})
	before := r.snapshot()
	for _, args := range [][]string{{"run", "--kubeconfig", r.kubeconfig}, {"diff", "--kubeconfig", r.kubeconfig},
		{"check"}} {
		o := r.command(args...)
		if want := r.path(fragment) + ":5: files.rootCAData.fiel: "; o.code != process.Usage ||
			!strings.Contains(o.stderr, want) || !strings.Contains(o.stderr, "hint: nothing was changed") {
			t.Errorf("%q exits with %d and says %q, want 2, a hint and %q", args, o.code, o.stderr, want)
		}
	}
	if after := r.snapshot(); after != before {
		t.Errorf("the tree changed from\n%s\nto\n%s", before, after)
	}
}

func TestAKubeconfigThatComesLaterIsPickedUp(t *testing.T) {
	r := newTree(t)
	if err := os.Remove(r.kubeconfig); err != nil {
		t.Fatal(err)
	}
	a := ca("a")
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": a})
	r.start()
	r.awaitStatus("the state", func(s report.Status) bool { return s.State == source.NoIdentity })
	if o := r.command("status"); o.code != exitNoID || !strings.Contains(o.stdout,
		"State:  no identity: kubeconfig "+r.kubeconfig+": no such file or directory") {
		t.Errorf("status exits with %d and prints\n%s", o.code, o.stdout)
	}
	if o := r.command("diff", "--kubeconfig", r.kubeconfig); o.code != exitNoID ||
		!strings.Contains(o.stderr, "no such file") {
		t.Errorf("diff exits with %d and says %q", o.code, o.stderr)
	}
	save(t, r.kubeconfig, strings.Replace(r.api.kubeconfig(), "token: ", "exec: {command: x}, token: ", 1))
	r.awaitStatus("a refusal", func(s report.Status) bool {
		return strings.Contains(s.Reason, "running a program is not accepted")
	})
	save(t, r.kubeconfig, r.api.kubeconfig())
	r.awaitFile(kubeletCA, a)
	r.awaitStatus("following", func(s report.Status) bool { return s.State == "following" })
	if o := r.command("status"); o.code != 0 {
		t.Errorf("status exits with %d and prints\n%s", o.code, o.stdout)
	}
}

func TestAnotherKubeconfigLeadsToAnotherServer(t *testing.T) {
	r := newTree(t)
	a, b := ca("a"), ca("b")
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": a})
	r.start()
	r.awaitFile(kubeletCA, a)
	moved := newAPI(t)
	moved.publish(map[string]any{"kubeAPIServerServingCAData": b})
	save(t, r.kubeconfig, moved.kubeconfig())
	r.awaitFile(kubeletCA, b)
}

func TestARefusedIdentityIsAStateAndIsKept(t *testing.T) {
	r := newTree(t)
	r.api.refuse = http.StatusUnauthorized
	a := ca("a")
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": a})
	r.start()
	r.awaitStatus("the state", func(s report.Status) bool {
		return s.State == "unauthorized" && strings.Contains(s.Reason, "not you")
	})
	r.api.mu.Lock()
	r.api.refuse = 0
	r.api.mu.Unlock()
	r.awaitFile(kubeletCA, a)
}

func TestConfigurationMayChangeWhileTheAgentRuns(t *testing.T) {
	r := newTree(t)
	a, b := ca("a"), ca("b")
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": a})
	agent := r.start()
	r.awaitFile(kubeletCA, a)

	r.configure("files: [\n")
	r.await("a record", func() bool { return strings.Contains(agent.log.String(), "changed configuration is invalid") })
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": b})
	r.awaitFile(kubeletCA, b)

	r.configure("files: {kubeAPIServerServingCAData: {path: /etc/kubernetes/moved.crt}}\n")
	r.awaitFile("/etc/kubernetes/moved.crt", b)
	if r.file(kubeletCA) != string(b) {
		t.Error("what lies at the old place is the administrator's, and it is gone")
	}
}

func TestAnAllowlistWithoutSystemdIsNoError(t *testing.T) {
	r := newTree(t)
	r.configure("files: {kubeAPIServerServingCAData: {onChange: [crio.service]}}\nunits: {crio.service: {verb: reload}}\n")
	v := r.api.publish(map[string]any{"kubeAPIServerServingCAData": ca("a")})
	r.start()
	r.awaitVersion(v)
	if s := r.status(); len(s.Units) > 0 || s.Error != "" {
		t.Errorf("status is %+v", s)
	}
}

func TestRelativePathsDo(t *testing.T) {
	r := newTree(t)
	t.Chdir(filepath.Dir(r.root))
	r.root, r.kubeconfig = filepath.Base(r.root), filepath.Join(filepath.Base(r.root), "etc/node-cert-agent/kubeconfig")
	a := ca("a")
	r.api.publish(map[string]any{"kubeAPIServerServingCAData": a})
	r.start()
	r.awaitFile(kubeletCA, a)
	if err := os.WriteFile(r.path(kubeletCA), []byte("scribble"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.awaitFile(kubeletCA, a) // drift is noticed, too
}

func TestWrongUseExitsWith2AndSaysSo(t *testing.T) {
	root := t.TempDir()
	for sentence, c := range map[string]struct {
		args []string
		want string
	}{
		"an unknown command":   {[]string{"frobnicate"}, `there is no command "frobnicate"`},
		"an unknown flag":      {[]string{"status", "--colour"}, "unknown flag: --colour"},
		"an argument too many": {[]string{"version", "x"}, `unexpected argument "x"`},
		"an unknown output": {[]string{"status", "-o", "xml"},
			`invalid argument "xml" for "-o, --output" flag: want table or json`},
		"a duration that is none":  {[]string{"diff", "--timeout", "soon"}, `invalid argument "soon"`},
		"a writer in plain mode":   {[]string{"writer", "--root", root}, "in plain mode there is no second process"},
		"a reloader in plain mode": {[]string{"reloader", "--root", root}, "in plain mode there is no systemd"},
		"a directory that is missing": {[]string{"diff", "--config-dir", filepath.Join(root, "none")},
			filepath.Join(root, "none")},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := command(t, c.args...)
			if o.code != process.Usage || !strings.Contains(o.stderr, c.want) ||
				!strings.HasPrefix(o.stderr, "node-cert-agent: error: ") || o.stdout != "" {
				t.Errorf("exits with %d, prints %q and says\n%swant 2 and %q", o.code, o.stdout, o.stderr, c.want)
			}
		})
	}
}

func TestWhatFailsExitsWith1AndAHint(t *testing.T) {
	root := t.TempDir()
	o := command(t, "status", "--root", root)
	if want := "node-cert-agent: error: the agent has published no status on this host\nnode-cert-agent: hint: is it " +
		"running? systemctl status node-cert-agent\n"; o.code != process.Failed || !strings.HasPrefix(o.stderr, want) {
		t.Errorf("status without an agent exits with %d and says\n%s", o.code, o.stderr)
	}
	if o := command(t, "status", "--root", filepath.Join(root, "none")); o.code != process.Failed ||
		!strings.Contains(o.stderr, "none") {
		t.Errorf("status in a missing tree exits with %d and says\n%s", o.code, o.stderr)
	}
}

func TestHelpNamesEveryCommandAndExitCode(t *testing.T) {
	o := command(t, "--help")
	for _, want := range []string{"run ", "writer ", "diff ", "check ", "certs ", "status ", "reloader ", "version ",
		"0 ok, 1 failed, 2 usage or configuration, 3 changes pending (diff), 4 no identity yet"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("help lacks %q:\n%s", want, o.stdout)
		}
	}
	if v := command(t, "version"); v.code != 0 || !strings.HasPrefix(v.stdout, "node-cert-agent "+version+" go") {
		t.Errorf("version exits with %d and prints %q", v.code, v.stdout)
	}
}

func TestTheTokenIsNowhereInEncodedFormEither(t *testing.T) {
	r := newTree(t)
	v := r.api.publish(map[string]any{"kubeAPIServerServingCAData": ca("a")})
	agent := r.start()
	r.awaitVersion(v)
	encoded := base64.StdEncoding.EncodeToString([]byte(marker))
	all := agent.log.String() + r.command("status", "-o", "json").stdout + r.file("/run/node-cert-agent/metrics.prom")
	if strings.Contains(all, marker) || strings.Contains(all, encoded) {
		t.Errorf("found in\n%s", all)
	}
}

func TestWithoutAnIdentityDiffExitsWith4(t *testing.T) {
	o := command(t, "diff", "--root", t.TempDir())
	if o.code != exitNoID || !strings.Contains(o.stderr, "error: this host has no identity yet") ||
		!strings.Contains(o.stderr, "bootstrap.d") {
		t.Errorf("exits with %d and says\n%s", o.code, o.stderr)
	}
}

func TestStatusTellsWhoUsesAFile(t *testing.T) {
	var out strings.Builder
	s := report.Status{State: "following", Files: []report.File{{Key: plan.Key{Field: plan.RootCAData}, Path: "/x",
		State: "in place", Consumers: []report.Consumer{
			{Kind: liveness.ClientCA, Address: "127.0.0.1:9637", State: liveness.Stale,
				Reason: "announces 1 of the file's 2 CAs"},
			{Kind: liveness.ClientCA, Address: "127.0.0.1:10250", State: liveness.Live}}}}}
	if err := printStatus(&out, s, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/x    rootCAData  in place, stale  0", `
CONSUMER                  OF  STATE  WHY
clientCA 127.0.0.1:9637   /x  stale  announces 1 of the file's 2 CAs
clientCA 127.0.0.1:10250  /x  live
`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it prints\n%swant\n%s", out.String(), want)
		}
	}
}

func TestWhileTheServiceRunsNobodyElseWorksOnItsState(t *testing.T) {
	r := newTree(t)
	r.start()
	r.awaitStatus("the start", func(s report.Status) bool { return s.State != "" })
	for _, command := range []string{"bootstrap", "reset"} {
		if o := r.command(command); o.code != process.Failed || !strings.Contains(o.stderr, "is in use by another process") ||
			!strings.Contains(o.stderr, "hint: the service has to be stopped") {
			t.Errorf("%s exits with %d and says %q", command, o.code, o.stderr)
		}
	}
}

func TestWhereNoWriterAnswersTheErrorSaysWhatToType(t *testing.T) {
	c := writer.Dial(filepath.Join(t.TempDir(), "none.sock"))
	_, err := files.Preview(t.Context(), c, plan.Desired{}, plan.Memory{},
		plan.Policy{Files: []plan.FileSpec{{Field: plan.RootCAData, Path: "/x"}}}, plan.Moment{})
	if got := strings.Join(hints(err), "; "); !strings.HasSuffix(got, "systemctl start node-cert-agent-writer.socket") {
		t.Errorf("%v: %q", err, got)
	}
}
