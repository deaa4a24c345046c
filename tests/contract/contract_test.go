// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	openshift "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

// content is what matters of an object: bytes by field, and by field and position for lists.
type content map[string]string

// theirs is the content as OpenShift's type holds it. Null, empty and missing are the same: nothing.
func theirs(s openshift.ControllerConfigSpec) content {
	c := content{}
	put := func(name string, data []byte) {
		if len(data) > 0 {
			c[name] = string(data)
		}
	}
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		name := jsonName(v.Type().Field(i))
		if !known(name) {
			continue
		}
		switch f := v.Field(i).Interface().(type) {
		case []byte:
			put(name, f)
		case []openshift.ImageRegistryBundle:
			for _, b := range f {
				put(name+" "+b.File, b.Data)
			}
		}
	}
	return c
}

// ours is the content as the agent decodes it.
func ours(t *testing.T, object []byte) content {
	t.Helper()
	o, err := watch.DecodeObject(bytes.NewReader(object))
	if err != nil {
		t.Fatalf("decoding %.200s: %v", object, err)
	}
	c := content{}
	put := func(name string, data []byte, reason string) {
		if reason != "" {
			t.Errorf("%s cannot be used: %s", name, reason)
		}
		if len(data) > 0 {
			c[name] = string(data)
		}
	}
	for id, f := range o.Fields {
		put(string(id), f.Data, f.Reason)
		for _, e := range f.Entries {
			put(string(id)+" "+e.File, e.Data, e.Reason)
		}
	}
	return c
}

func known(name string) bool { return slices.Contains(plan.Fields(), plan.Field(name)) }

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func config(s openshift.ControllerConfigSpec) *openshift.ControllerConfig {
	return &openshift.ControllerConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: "machineconfiguration.openshift.io/v1", Kind: "ControllerConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller", UID: "u", ResourceVersion: "7"},
		Spec:       s,
	}
}

// encodings are the object as encoding/json writes the struct, and as an API server does: it keeps
// custom resources as maps.
func encodings(t *testing.T, o *openshift.ControllerConfig) map[string][]byte {
	t.Helper()
	typed, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	served, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"as a struct": typed, "as an API server": served}
}

func TestObjectsOfOpenShiftsTypesDecodeToTheSameBytes(t *testing.T) {
	bundle := func(file string, data []byte) openshift.ImageRegistryBundle {
		return openshift.ImageRegistryBundle{File: file, Data: data}
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for sentence, s := range map[string]openshift.ControllerConfigSpec{
		"nothing is set: the required fields are null": {},
		"every field holds every byte": {KubeAPIServerServingCAData: every, CloudProviderCAData: every[1:],
			RootCAData: every[2:], AdditionalTrustBundle: every[3:],
			ImageRegistryBundleData:     []openshift.ImageRegistryBundle{bundle("a..5000", every)},
			ImageRegistryBundleUserData: []openshift.ImageRegistryBundle{bundle("b", every[4:])}},
		"empty is not null and as much as nothing": {KubeAPIServerServingCAData: []byte{}, CloudProviderCAData: []byte{},
			RootCAData: []byte{}, AdditionalTrustBundle: []byte{},
			ImageRegistryBundleData:     []openshift.ImageRegistryBundle{},
			ImageRegistryBundleUserData: []openshift.ImageRegistryBundle{}},
		"entries may be empty or null": {ImageRegistryBundleData: []openshift.ImageRegistryBundle{bundle("a", nil),
			bundle("b", []byte{}), bundle("c", every)}},
		"one newline stays one":      {KubeAPIServerServingCAData: []byte("\n")},
		"names are kept as they are": {ImageRegistryBundleUserData: []openshift.ImageRegistryBundle{bundle("<&>\u2028\"\\/..5000", every), bundle("é", every[7:])}},
		"what is not ours is passed over": {RootCAData: every, CloudProviderConfig: "rootCAData",
			Images:                     map[string]string{"rootCAData": "eA=="},
			InternalRegistryPullSecret: []byte(`{"auths":{}}`), BaseOSContainerImage: "x", NetworkType: "OVNKubernetes"},
	} {
		for how, object := range encodings(t, config(s)) {
			t.Run(sentence+", "+how, func(t *testing.T) {
				if got, want := ours(t, object), theirs(s); !maps.Equal(got, want) {
					t.Errorf("decoded %q, want %q", got, want)
				}
			})
		}
	}
}

func TestAnyBytesDecodeToThemselves(t *testing.T) {
	f := func(kubelet, cloud, root, trust, registry []byte, file string) bool {
		s := openshift.ControllerConfigSpec{KubeAPIServerServingCAData: kubelet, CloudProviderCAData: cloud, RootCAData: root,
			AdditionalTrustBundle: trust,
			ImageRegistryBundleData: []openshift.ImageRegistryBundle{{File: "x" + strings.ToValidUTF8(file, ""),
				Data: registry}}}
		for _, object := range encodings(t, config(s)) {
			if !maps.Equal(ours(t, object), theirs(s)) {
				return false
			}
		}
		return true
	}
	if err := quick.Check(f, nil); err != nil {
		t.Error(err)
	}
}

func TestFieldsThatWeDoNotKnowAreNoFault(t *testing.T) {
	object := encodings(t, config(openshift.ControllerConfigSpec{RootCAData: []byte("x")}))["as an API server"]
	var m map[string]any
	if err := json.Unmarshal(object, &m); err != nil {
		t.Fatal(err)
	}
	deep := map[string]any{"rootCAData": "eQ==", "spec": []any{map[string]any{"rootCAData": nil}}}
	m["rootCAData"], m["new"] = "eQ==", deep
	spec := m["spec"].(map[string]any)
	spec["rootCAData2"], spec["RootCAData"], spec["caBundles"] = "eQ==", "eQ==", []any{deep}
	m["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"fieldsV1": map[string]any{"f:spec": map[string]any{"f:rootCAData": map[string]any{}}}}}
	more, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ours(t, more), (content{"rootCAData": "x"}); !maps.Equal(got, want) {
		t.Errorf("decoded %q, want %q", got, want)
	}
	delete(spec, "rootCAData")
	if without, _ := json.Marshal(m); len(ours(t, without)) != 0 {
		t.Errorf("a field that is left out decodes to %q", ours(t, without))
	}
}

func TestTheStatusIsIgnored(t *testing.T) {
	o := config(openshift.ControllerConfigSpec{RootCAData: []byte("x")})
	now := metav1.NewTime(time.Unix(1.8e9, 0))
	for _, bundle := range []string{"KubeAPIServerServingCAData", "RootCAData", "rootCAData", "registry..5000"} {
		o.Status.ControllerCertificates = append(o.Status.ControllerCertificates, openshift.ControllerCertificate{
			Subject: "CN=a", Signer: "CN=b", NotBefore: &now, NotAfter: &now, BundleFile: bundle})
	}
	o.Status.Conditions = []openshift.ControllerConfigStatusCondition{{Type: openshift.TemplateControllerFailing,
		Status: "True", Reason: "x", Message: "y"}}
	for how, object := range encodings(t, o) {
		if got, want := ours(t, object), (content{"rootCAData": "x"}); !maps.Equal(got, want) {
			t.Errorf("%s: decoded %q, want %q", how, got, want)
		}
	}
}

func TestOurFieldsAreExactlyTheirsThatHoldBytes(t *testing.T) {
	spec := reflect.TypeFor[openshift.ControllerConfigSpec]()
	found := map[plan.Field]bool{}
	for i := range spec.NumField() {
		f := spec.Field(i)
		name, list := jsonName(f), f.Type == reflect.TypeFor[[]openshift.ImageRegistryBundle]()
		if !list && f.Type != reflect.TypeFor[[]byte]() {
			continue
		}
		switch id := plan.Field(name); {
		case known(name) && id.List() == list:
			found[id] = true
		case known(name):
			t.Errorf("%s is a list there: %v, and here: %v", name, list, id.List())
		default:
			t.Errorf("OpenShift publishes %s, and no field knows it", name)
		}
	}
	for _, id := range plan.Fields() {
		if !found[id] && !id.FromConfigMap() {
			t.Errorf("%s is no field of OpenShift's type", id)
		}
	}
}
