// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/packaging/profiles"
	"github.com/node-cert-agent/node-cert-agent/renew"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// blocks are the fenced blocks of a language in a page.
func blocks(page, language string) (out []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	return out
}

func TestEveryConfigurationInTheDocumentationIsValid(t *testing.T) {
	n := 0
	for _, page := range []string{"README.md", "docs/usage/configuration.md", "docs/usage/kubeadm.md",
		"docs/usage/operating.md"} {
		for i, text := range blocks(read(t, page), "yaml") {
			dir := t.TempDir()
			save(t, filepath.Join(dir, "50-site.yaml"), text)
			if _, err := config.Load(config.Options{Root: t.TempDir(), Dirs: []string{dir}}); err != nil {
				t.Errorf("%s, block %d: %v", page, i+1, err)
			}
			n++
		}
	}
	if n < 5 {
		t.Errorf("found %d blocks", n)
	}
}

func TestEveryKeyIsDocumentedWithItsDefault(t *testing.T) {
	page := read(t, "docs/usage/configuration.md")
	text, err := profiles.FS.ReadFile(profiles.Base + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{"profile": true, "units.UNIT.enabled": true, "units.UNIT.verb": true,
		"units.UNIT.alsoAffects": true}
	leaves(tree, "", func(key string, value any) {
		field, rest, isFile := strings.Cut(strings.TrimPrefix(key, "files."), ".")
		if isFile && strings.HasPrefix(key, "files.") {
			key = "files.FIELD." + rest
		}
		documented[key] = true
		cell := "`" + fmt.Sprint(value) + "`"
		switch {
		case key == "apiVersion", value == "", field == "kubeAPIServerServingCAData" && rest == "verify":
			return
		case rest == "path":
			key, cell = field, "`"+fmt.Sprint(value)+"`"
		case isFile && strings.HasPrefix(key, "files.") && (rest == "enabled" || rest == "mode"):
			cell = "see below" // TestTheTableOfFilesIsWhatTheProfilesSay
		}
		if !strings.Contains(page, "| `"+key+"` | "+cell+" |") {
			t.Errorf("no line says that the default of %s is %s", key, cell)
		}
	})
	for key := range documented {
		if !strings.Contains(page, "| `"+key+"` |") {
			t.Errorf("%s is not documented", key)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+\\.[A-Za-z.]+)` \\|").FindAllStringSubmatch(page, -1) {
		if !documented[m[1]] {
			t.Errorf("%s is documented and does not exist", m[1])
		}
	}
}

// profile is what a bare host with this profile has.
func profile(t *testing.T, name string) config.Settings {
	t.Helper()
	dir := t.TempDir()
	save(t, filepath.Join(dir, "50-site.yaml"), "apiVersion: config.node-cert-agent.io/v1alpha1\nprofile: "+name+"\n")
	s, err := config.Load(config.Options{Root: t.TempDir(), Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheTableOfFilesIsWhatTheProfilesSay(t *testing.T) {
	page := read(t, "docs/usage/configuration.md")
	for _, id := range plan.Fields() {
		var spec plan.FileSpec
		on := map[bool]string{true: "on", false: "off"}
		cells := []string{""}
		for _, name := range []string{"standalone", "openshift", "kubeadm"} {
			r, enabled := profile(t, name).Policy.File(id)
			if enabled && spec.Path == "" {
				spec = r
			}
			cell := on[enabled]
			if enabled && r.Path != spec.Path {
				cell = "`" + r.Path + "`"
			}
			cells = append(cells, cell)
		}
		mode := fmt.Sprintf("`\"%04o\"`", spec.Mode)
		if id.Edits() {
			mode = "kept"
		}
		cells[0] = fmt.Sprintf("| `%s` | `%s` | %s", id, spec.Path, mode)
		if line := strings.Join(cells, " | ") + " |"; !strings.Contains(page, line) {
			t.Errorf("no line begins with %s", line)
		}
	}
}

// leaves calls f for every key that has a value of its own.
func leaves(tree map[string]any, path string, f func(key string, value any)) {
	for _, k := range slices.Sorted(maps.Keys(tree)) {
		if sub, ok := tree[k].(map[string]any); ok {
			leaves(sub, path+k+".", f)
		} else {
			f(path+k, tree[k])
		}
	}
}

func TestTheTableOfMetricsIsComplete(t *testing.T) {
	var text string
	r := report.New(func(name string, data []byte) error {
		if name == report.MetricsFile {
			text = string(data)
		}
		return nil
	}, false)
	s := report.Status{State: "following", ConfigMap: &report.Source{State: "following"},
		Identity: &report.Identity{State: "active"}, Files: []report.File{{Key: plan.Key{Field: plan.RootCAData},
			Certificates: 1, Expires: time.Now(), Consumers: []report.Consumer{{State: liveness.Live}}}},
		Units: []report.Unit{{Name: "x.service"}}}
	if err := r.Publish(s); err != nil {
		t.Fatal(err)
	}
	text += string(renew.Metrics(pair.Report{Unrenewed: &pair.Date{}, Lock: &pair.Lock{}}))
	published := regexp.MustCompile(`(?m)^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)\n`).FindAllStringSubmatch(text, -1)
	page := read(t, "docs/usage/metrics.md")
	for _, m := range published {
		if line := fmt.Sprintf("\n| `%s` | %s | %s", m[1], m[3], m[2]); !strings.Contains(page, line) {
			t.Errorf("docs/usage/metrics.md has no line that begins with %s", line)
		}
	}
	if documented := strings.Count(page, "\n| `node_cert_agent_"); documented != len(published) || documented < 10 {
		t.Errorf("%d metrics are documented and %d published", documented, len(published))
	}
}

// Any user of a host may send entries with our identifier, MESSAGE_ID and fields. Only the unit is journald's own word.
func TestDocumentedQueriesShowNoRecordOfSomebodyElse(t *testing.T) {
	query := regexp.MustCompile(`journalctl .*(?:NODECERT_|MESSAGE_ID|SYSLOG_IDENTIFIER| -t ).*`)
	found := 0
	for _, pages := range []string{"../../*.md", "../../docs/*.md", "../../docs/*/*.md", "../../packaging/man/*.8"} {
		names, err := filepath.Glob(pages)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d pages, %v", pages, len(names), err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range query.FindAllString(string(text), -1) {
				if found++; !strings.Contains(q, "_SYSTEMD_UNIT=node-cert-agent") {
					t.Errorf("%s: %s", name, q)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no query was found")
	}
}

func TestTheManualPageHasEveryCommandAndFlag(t *testing.T) {
	var out strings.Builder
	if code := run(t.Context(), []string{"man"}, &out, os.Stderr); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	page := strings.ReplaceAll(out.String(), `\-`, "-")
	for _, c := range root().Commands() {
		if has := strings.Contains(page, ".SS "+c.Name()+"\n"); has == c.Hidden {
			t.Errorf("%s is on the page: %v", c.Name(), has)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(page, "--"+f.Name+`\fR`) {
				t.Errorf("%s --%s is not on the page", c.Name(), f.Name)
			}
		})
	}
	if text := roff(".x \\ -\n'y"); text != "\\&.x \\e \\-\n\\&'y" {
		t.Errorf("escaped to %q", text)
	}
}
