// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	packaging = "../../packaging"
	image     = "registry.example/controller@sha256:4b2f8402469b4fe94b2f8402469b4fe94b2f8402469b4fe94b2f8402469b4fe9"
	keep      = "helm.sh/resource-policy"
)

// object is one of Kubernetes, as JSON.
type object map[string]any

func (o object) key() string {
	meta := o["metadata"].(map[string]any)
	return fmt.Sprintf("%s %v/%v", o["kind"], meta["namespace"], meta["name"])
}

// objects are those of a stream of YAML, by kind and name.
func objects(t *testing.T, stream string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for _, text := range regexp.MustCompile(`(?m)^---$`).Split(stream, -1) {
		var o object
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if o == nil {
			continue
		}
		if all[o.key()] != nil {
			t.Errorf("%s is there twice", o.key())
		}
		all[o.key()] = o
	}
	return all
}

// files adds the files below dir to a chart, under prefix.
func files(t *testing.T, dir, prefix string) (list []*archive.BufferedFile) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		list = append(list, &archive.BufferedFile{Name: filepath.Join(prefix, rel), Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// render is what Helm would install with these values.
func render(t *testing.T, values map[string]any) (string, error) {
	t.Helper()
	all := append(files(t, packaging+"/helm", ""), files(t, packaging+"/kubernetes", "kubernetes")...)
	chart, err := loader.LoadFiles(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		t.Fatal(err)
	}
	with, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "x", Namespace: "y"}, nil)
	if err != nil {
		return "", err
	}
	made, err := engine.Render(chart, with)
	return made["node-cert-controller/templates/manifests.yaml"], err
}

// kustomize is what kustomize makes of the base, these components and this image.
func kustomize(t *testing.T, components []string) string {
	t.Helper()
	root, err := filepath.Abs(packaging + "/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rel, err := filepath.Rel(dir, root)
	if err != nil {
		t.Fatal(err)
	}
	for i := range components {
		components[i] = rel + "/components/" + components[i]
	}
	name, digest, _ := strings.Cut(image, "@")
	text := fmt.Sprintf("resources: [%s/base]\ncomponents: [%s]\n"+
		"images: [{name: registry.invalid/node-cert-controller, newName: %s, digest: '%s'}]\n",
		rel, strings.Join(components, ", "), name, digest)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestTheChartMakesWhatKustomizeMakes(t *testing.T) {
	for name, c := range map[string]struct {
		values     map[string]any
		components []string
	}{
		"as it is": {nil, []string{"bootstrap", "controller", "approver", "controller-deployment", "publisher"}},
		"the least": {map[string]any{"bootstrap": false, "publisher": false},
			[]string{"controller", "approver", "controller-deployment"}},
		"everything": {map[string]any{"singleUse": true, "machines": true, "monitoring": true, "kubeadm": true, "clusterAPI": true},
			[]string{"bootstrap", "controller", "approver", "controller-deployment", "publisher", "kubeadm", "single-use",
				"openshift-machines", "cluster-api", "monitoring"}},
	} {
		t.Run(name, func(t *testing.T) {
			values := map[string]any{"image": image}
			for k, v := range c.values {
				values[k] = v
			}
			text, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			got, want := objects(t, text), objects(t, kustomize(t, c.components))
			for key, o := range want {
				if o["kind"] == "CustomResourceDefinition" {
					kept(t, got[key])
				}
				compare(t, key, got[key], o)
				delete(got, key)
			}
			for key := range got {
				t.Errorf("kustomize does not make %s", key)
			}
		})
	}
}

// kept takes the one difference away: Helm leaves a kind when the release goes.
func kept(t *testing.T, o object) {
	t.Helper()
	meta, _ := o["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	if notes[keep] != "keep" {
		t.Errorf("uninstalling the chart would take the kind away, and every object with it: %v", meta)
	}
	delete(notes, keep)
	if len(notes) == 0 {
		delete(meta, "annotations")
	}
}

func compare(t *testing.T, key string, got, want object) {
	t.Helper()
	a, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	// kyaml doubles line breaks of a folded text, which our CEL has; to CEL they are one.
	breaks := regexp.MustCompile(`(\\n)+`)
	if breaks.ReplaceAllString(string(a), " ") != breaks.ReplaceAllString(string(b), " ") {
		t.Errorf("%s: the chart makes\n%s\nkustomize\n%s", key, a, b)
	}
}

func TestReplicasAreTheValue(t *testing.T) {
	text, err := render(t, map[string]any{"image": image, "replicas": 3})
	if err != nil {
		t.Fatal(err)
	}
	spec, _ := objects(t, text)["Deployment node-cert-agent/node-cert-controller"]["spec"].(map[string]any)
	if got := fmt.Sprint(spec["replicas"]); got != "3" {
		t.Errorf("%s replicas, want 3", got)
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]any
		want   string
	}{
		"no image":        {nil, "set image to where the image"},
		"a mistyped name": {map[string]any{"image": image, "monitorring": true}, "monitorring"},
		"no number":       {map[string]any{"image": image, "replicas": "two"}, "replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := render(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want one that says %q", err, c.want)
			}
		})
	}
}
