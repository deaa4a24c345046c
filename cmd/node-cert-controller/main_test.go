// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestBadArgumentsAreUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"--no-such-flag"}, {"-lease", "1m"}, {"argument"}, {"--max-lifetime", "9m"}, {"--max-lifetime", "2161h"},
		{"--stale-after", "1s"}, {"--stale-after", "x"}, {"--lease", "0s"}, {"--lease", "1m", "--stale-after", "1m"},
		{"--metrics-bind-address", "127.0.0.1"}, {"--metrics-bind-address", "host.example.org:1"},
		{"--health-probe-bind-address", ":65536"}, {"--metrics-cert-dir", "/x"}, {"--controllers", ""},
		{"--etcd-client-renew-before", "-1s"}, {"--etcd-client-renew-before", "4321h"},
	} {
		var out, complaint bytes.Buffer
		if code := run(t.Context(), args, &out, &complaint); code != 2 || out.Len() > 0 ||
			!strings.Contains(complaint.String(), "error: ") {
			t.Errorf("%v: code %d, %s", args, code, complaint.String())
		}
	}
}

func TestAnUnknownControllerIsAUsageErrorThatNamesTheKnown(t *testing.T) {
	var out, complaint bytes.Buffer
	code := run(t.Context(), []string{"--controllers", "approver,undertaker"}, &out, &complaint)
	if text := complaint.String(); code != 2 || !strings.Contains(text, `no "undertaker"`) ||
		!strings.Contains(text, strings.Join(known(), ", ")) {
		t.Errorf("code %d, %s", code, text)
	}
}

func TestAControllerThatIsNamedTwiceRunsOnce(t *testing.T) {
	s := settings{controllers: []string{"approver", "publisher", "approver", "cluster-api"}, lifetime: longest,
		stale: time.Hour, lease: time.Second}
	if err := s.check(); err != nil || strings.Join(s.controllers, " ") != "approver cluster-api publisher" {
		t.Errorf("%v, %v", s.controllers, err)
	}
}

func TestVersionAndHelpSucceed(t *testing.T) {
	for _, arg := range []string{"--version", "--help"} {
		var out, help bytes.Buffer
		if code := run(t.Context(), []string{arg}, &out, &help); code != 0 || out.Len()+help.Len() == 0 {
			t.Errorf("%s: code %d", arg, code)
		}
	}
}

func TestTheManualPageHasEveryFlag(t *testing.T) {
	page, err := os.ReadFile("../../packaging/man/node-cert-controller.8")
	if err != nil {
		t.Fatal(err)
	}
	var out, help bytes.Buffer
	run(t.Context(), []string{"--help"}, &out, &help)
	flags := regexp.MustCompile(`(?m)^ +(?:-[a-z], )?(--[a-z-]+)`).FindAllStringSubmatch(out.String(), -1)
	if len(flags) < 13 {
		t.Fatalf("found %d flags in\n%s", len(flags), out.String())
	}
	for _, f := range flags {
		if !strings.Contains(string(page), `\fB`+strings.ReplaceAll(f[1], "-", `\-`)+`\fR`) {
			t.Errorf("%s is not on the page", f[1])
		}
	}
}

func TestAMissingKubeconfigFails(t *testing.T) {
	var out, complaint bytes.Buffer
	if code := run(t.Context(), []string{"--kubeconfig", filepath.Join(t.TempDir(), "none")}, &out,
		&complaint); code != 1 || complaint.Len() == 0 {
		t.Errorf("code %d, %s", code, complaint.String())
	}
}

func TestTheListOfNodes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes")
	if err := os.WriteFile(file, []byte("# machines\nfirewall-1\n\n  firewall-2  # rack 7\n#firewall-3\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]bool{"firewall-1": true, "firewall-2": true, "firewall-3": false,
		"firewall": false} {
		if got, err := listed(file, node); err != nil || got != want {
			t.Errorf("%s: %v, %v", node, got, err)
		}
	}
	if found, err := listed("", "a"); found || err != nil {
		t.Errorf("no list: %v, %v", found, err)
	}
	if _, err := listed(file+"-gone", "a"); err == nil {
		t.Error("a list that cannot be read is no error, and nodes would be left for another reason")
	}
}
