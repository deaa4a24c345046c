// SPDX-License-Identifier: Apache-2.0

package enable

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
)

// The two pages whose blocks are run.
const (
	install       = "install.md"
	openShiftPage = "openshift.md"
)

// section is one heading of a page, and the blocks below it by language.
type section struct {
	heading string
	blocks  map[string][]string
}

// sections are those of a page that have blocks.
func sections(page string) (all []section, err error) {
	text, err := os.ReadFile(filepath.Join("../../docs/usage", page))
	if err != nil {
		return nil, err
	}
	for _, part := range regexp.MustCompile("\n##+ ").Split(string(text), -1)[1:] {
		heading, text, _ := strings.Cut(part, "\n")
		s := section{heading, map[string][]string{}}
		for _, m := range regexp.MustCompile("(?ms)^```(.*?)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
			s.blocks[m[1]] = append(s.blocks[m[1]], m[2])
		}
		if len(s.blocks) > 0 {
			all = append(all, s)
		}
	}
	return all, nil
}

// TestEachWayTakesAtMostTenLines also holds the list of blocks that the real tests run: a new one needs a test.
func TestEachWayTakesAtMostTenLines(t *testing.T) {
	for page, tested := range map[string]string{
		install: "The cluster's side [sh], A token [sh], " +
			"Debian, Ubuntu [sh], Red Hat's distributions [sh], Anything else with systemd [sh], " + // in tests/packages
			"A layer of the image [sh], cloud-init [sh], Ignition [sh], OpenShift and OKD [sh], The token as a credential [sh]",
		openShiftPage: "The cluster [sh], The image [sh yaml yaml], HyperShift [sh yaml]",
	} {
		all, err := sections(page)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, s := range all {
			var languages []string
			for language, blocks := range s.blocks {
				for range blocks {
					languages = append(languages, language)
				}
			}
			slices.Sort(languages)
			found = append(found, fmt.Sprintf("%s %v", s.heading, languages))
			for _, text := range s.blocks["sh"] {
				if n := strings.Count(text, "\n"); n > 10 {
					t.Errorf("%s, %s: %d lines, want at most ten", page, s.heading, n)
				}
			}
		}
		if got := strings.Join(found, ", "); got != tested {
			t.Errorf("%s has the blocks\n%s\nof which these are tested:\n%s", page, got, tested)
		}
	}
}

// hyperShift is the configuration that the page gives for hosted clusters.
func hyperShift() (string, error) {
	all, err := sections(openShiftPage)
	if err != nil {
		return "", err
	}
	return all[len(all)-1].blocks["yaml"][0], nil
}

func TestInAHostedClusterTheAgentFollowsOurObjectAlone(t *testing.T) {
	text, err := hyperShift()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "50-site.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := config.Load(config.Options{Root: t.TempDir(), Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for _, r := range s.Policy.Files {
		fields = append(fields, string(r.Field))
	}
	if want := []string{"kubeAPIServerServingCAData", "imageRegistryBundleData",
		"imageRegistryBundleUserData"}; !slices.Equal(fields, want) {
		t.Errorf("the fields are %q, want %q", fields, want)
	}
	if s.ControllerConfig.Group != "node-cert-agent.io" {
		t.Errorf("the ControllerConfig is of %s", s.ControllerConfig.Group)
	}
}
