// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func profile(t *testing.T, name string) Settings {
	t.Helper()
	return load(t, map[string]string{etcDir + "10.yaml": header + "profile: " + name + "\n"})
}

// TestTheProfilesAreTheTableOfTheDesign states which field is on where, and which modes and sources that
// comes with.
func TestTheProfilesAreTheTableOfTheDesign(t *testing.T) {
	names := []string{"standalone", "openshift", "kubeadm"}
	table := map[plan.Field][]bool{
		plan.KubeAPIServerServingCAData:  {true, true, true},
		plan.CloudProviderCAData:         {true, true, false},
		plan.RootCAData:                  {true, false, true},
		plan.AdditionalTrustBundle:       {true, false, true},
		plan.ImageRegistryBundleData:     {true, true, true},
		plan.ImageRegistryBundleUserData: {true, true, true},
		plan.InternalRegistryPullSecret:  {false, true, false},
		plan.KubeconfigCAData:            {false, true, false},
		plan.KubeletKubeconfigCAData:     {false, true, true},
	}
	if len(table) != len(plan.Fields()) {
		t.Errorf("the table has %d fields, there are %d", len(table), len(plan.Fields()))
	}
	for i, name := range names {
		s := profile(t, name)
		if s.Profile != name {
			t.Errorf("%s calls itself %s", name, s.Profile)
		}
		for id, on := range table {
			spec, have := s.Policy.File(id)
			if have != on[i] {
				t.Errorf("%s: %s is on: %v, want %v", name, id, have, on[i])
			}
			want := plan.FileSpec{Field: id, Path: spec.Path, Mode: 0o644}
			if id == plan.InternalRegistryPullSecret {
				want.Mode = 0o600
			} else if id.Edits() {
				want.Mode = 0
			}
			if have && (spec.Mode != want.Mode || spec.UID != 0 || spec.GID != 0 || spec.FollowLink || len(spec.OnChange) > 0 ||
				spec.Strict) {
				t.Errorf("%s: have %+v, want %+v", name, spec, want)
			}
		}
		if len(s.Policy.Units) > 0 {
			t.Errorf("%s allows %v: no unit is touched until the administrator names it", name, s.Policy.Units)
		}
	}
}

func TestTheProfilesDifferInTheirSourcesAsWell(t *testing.T) {
	small := ControllerConfig{"node-cert-agent.io", "v1alpha1", "controllerconfigs", "machine-config-controller"}
	for name, want := range map[string]struct {
		object    ControllerConfig
		configMap ConfigMap
		consume   string
	}{
		"standalone": {small, ConfigMap{}, "delete"},
		"kubeadm":    {small, ConfigMap{"kube-public", "kube-root-ca.crt", "ca.crt"}, "delete"},
		"openshift": {ControllerConfig{"machineconfiguration.openshift.io", "v1", "controllerconfigs",
			"machine-config-controller"},
			ConfigMap{"openshift-machine-config-operator", "kubeconfig-data", "ca-bundle.crt"}, "mark-used"},
	} {
		if s := profile(t, name); s.ControllerConfig != want.object || s.ConfigMap != want.configMap ||
			s.Consume != want.consume {
			t.Errorf("%s: have %v %v %s, want %v", name, s.ControllerConfig, s.ConfigMap, s.Consume, want)
		}
	}
}

func TestAProfileSetsOnlyWhatDiffersFromTheBase(t *testing.T) {
	all := builtinProfiles()
	base, _ := parseAll([]source{all["standalone"]}, profileRules)
	for name, s := range all {
		layers, problems := parseAll([]source{s}, profileRules)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		for key, v := range layers[0] {
			if name != "standalone" && key != "apiVersion" && reflect.DeepEqual(base[0][key].value, v.value) {
				t.Errorf("%s:%d sets %s to what it is without", s.path, v.line, key)
			}
		}
	}
}

func TestAFragmentTurnsAFieldOfTheProfileOnAndOff(t *testing.T) {
	s := load(t, map[string]string{etcDir + "10.yaml": header +
		"profile: openshift\nfiles: {rootCAData: {enabled: true}, kubeconfigCAData: {enabled: false}, " +
		"kubeletKubeconfigCAData: {enabled: false}}\n"})
	_, root := s.Policy.File(plan.RootCAData)
	_, kubeconfig := s.Policy.File(plan.KubeconfigCAData)
	if !root || kubeconfig || s.ConfigMap != (ConfigMap{}) {
		t.Errorf("root %v, kubeconfig %v, source %v", root, kubeconfig, s.ConfigMap)
	}
}
