// SPDX-License-Identifier: Apache-2.0

// Package controllerconfig makes the object that agents watch, in either of its two kinds, and
// changes it through an API server.
//
// It knows the fields that reach a node's disk and, for OpenShift's kind, fills in the others as a
// cluster would: they make up the weight of the real object, about 100 KB with twenty image
// registries. It validates nothing; what is not fit for a disk is for the agent to refuse.
//
// Sources: github.com/openshift/api machineconfiguration/v1 (ControllerConfigSpec) and our own
// packaging/kubernetes/crd.
package controllerconfig

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// Name is the name of the one object.
const Name = "machine-config-controller"

// API is one of the two kinds.
type API struct{ Group, Version string }

// OpenShift is the real kind; Small is ours, for other clusters.
var (
	OpenShift = API{Group: "machineconfiguration.openshift.io", Version: "v1"}
	Small     = API{Group: "node-cert-agent.io", Version: "v1alpha1"}
)

// Path is the collection's path on any API server.
func (a API) Path() string { return "/apis/" + a.Group + "/" + a.Version + "/controllerconfigs" }

// Spec holds the fields that reach a node's disk; what is empty is left out of the JSON.
type Spec struct {
	KubeAPIServerServingCAData  []byte     `json:"kubeAPIServerServingCAData,omitempty"`
	RootCAData                  []byte     `json:"rootCAData,omitempty"`
	CloudProviderCAData         []byte     `json:"cloudProviderCAData,omitempty"`
	AdditionalTrustBundle       []byte     `json:"additionalTrustBundle,omitempty"`
	ImageRegistryBundleData     []Registry `json:"imageRegistryBundleData,omitempty"`
	ImageRegistryBundleUserData []Registry `json:"imageRegistryBundleUserData,omitempty"`
	InternalRegistryPullSecret  []byte     `json:"internalRegistryPullSecret,omitempty"`
}

// Registry is one image registry's bundle. File is its host[:port] with ".." for ":".
type Registry struct {
	File string `json:"file"`
	Data []byte `json:"data"`
}

// Typical is what a cluster of some age publishes: seven CA certificates for the kubelet, four for
// the other files, and two for each of the given number of registries, all with RSA keys.
func Typical(registries int) Spec {
	ca := testpki.New("root-ca", testpki.RSA) // one key will do: a certificate's digest is what counts
	bundle := func(cns ...string) (b []byte) {
		for _, cn := range cns {
			b = append(b, ca.Renew(cn).PEM()...)
		}
		return b
	}
	s := Spec{
		KubeAPIServerServingCAData: bundle("kube-apiserver-localhost-signer", "kube-apiserver-service-network-signer",
			"kube-apiserver-lb-signer", "kubelet-signer", "kube-csr-signer_@1755000000", "admin-kubeconfig-signer",
			"openshift-kube-apiserver-operator_localhost-recovery-serving-signer@1755000000"),
		RootCAData:                 ca.PEM(),
		CloudProviderCAData:        bundle("cloud-ca"),
		AdditionalTrustBundle:      bundle("corporate-root", "corporate-intermediate"),
		InternalRegistryPullSecret: PullSecret("serviceaccount", fmt.Sprintf("%01200x", 7)),
	}
	for i := range registries {
		file := fmt.Sprintf("registry-%02d.example.internal..5000", i)
		s.ImageRegistryBundleData = append(s.ImageRegistryBundleData, Registry{File: file,
			Data: bundle(file+"-root", file+"-intermediate")})
	}
	return s
}

// PullSecret is a docker config with one login.
func PullSecret(user, password string) []byte {
	return fmt.Appendf(nil, `{"auths":{"image-registry.openshift-image-registry.svc:5000":{"auth":"%s"}}}`,
		base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
}

// Object is the whole object as JSON. Its status, which OpenShift's kind has, is what the machine
// config controller says of such bundles; an API server takes it only at the subresource.
func Object(api API, s Spec) []byte { return object(api, Name, s) }

func object(api API, name string, s Spec) []byte {
	object := map[string]any{
		"apiVersion": api.Group + "/" + api.Version,
		"kind":       "ControllerConfig",
		"metadata":   map[string]any{"name": name},
		"spec":       s,
	}
	if api == OpenShift {
		spec := clusterSpec()
		mustDecode(mustEncode(s), &spec)
		object["spec"], object["status"] = spec, status(s)
	}
	return mustEncode(object)
}

// clusterSpec is the part of OpenShift's object that no node's disk ever sees, and the required
// fields of the other part.
func clusterSpec() map[string]any {
	const images = "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:"
	components := map[string]string{}
	for i := range 40 {
		components[fmt.Sprintf("component-%02d", i)] = fmt.Sprintf("%s%064x", images, i)
	}
	meta := map[string]any{"name": "cluster"}
	return map[string]any{
		"kubeAPIServerServingCAData": "", "rootCAData": "", "cloudProviderCAData": nil, "additionalTrustBundle": nil,
		"clusterDNSIP": "172.30.0.10", "cloudProviderConfig": "", "platform": "none", "ipFamilies": "IPv4",
		"networkType": "OVNKubernetes",
		"proxy":       nil, "network": map[string]any{"mtuMigration": nil}, "images": components,
		"baseOSContainerImage": components["component-00"], "releaseImage": components["component-01"],
		"infra": map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": meta,
			"spec": map[string]any{"cloudConfig": map[string]any{"name": ""}, "platformSpec": map[string]any{"type": "None"}},
			"status": map[string]any{"apiServerURL": "https://api.example.test:6443",
				"apiServerInternalURI": "https://api-int.example.test:6443",
				"controlPlaneTopology": "HighlyAvailable", "infrastructureTopology": "HighlyAvailable", "cpuPartitioning": "None",
				"etcdDiscoveryDomain": "", "infrastructureName": "example-x7k2p", "platform": "None",
				"platformStatus": map[string]any{"type": "None"}}},
		"dns": map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "DNS", "metadata": meta,
			"spec":   map[string]any{"baseDomain": "example.test", "platform": map[string]any{"type": "", "aws": nil}},
			"status": map[string]any{}},
	}
}

// status lists every certificate that parses, as the machine config controller does.
func status(s Spec) map[string]any {
	certificates := []any{}
	add := func(file string, bundle []byte) {
		for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
			if c, err := x509.ParseCertificate(block.Bytes); err == nil {
				certificates = append(certificates, map[string]any{"bundleFile": file, "subject": c.Subject.String(),
					"signer":    c.Issuer.String(),
					"notBefore": c.NotBefore.UTC().Format(time.RFC3339), "notAfter": c.NotAfter.UTC().Format(time.RFC3339)})
			}
		}
	}
	add("KubeAPIServerServingCAData", s.KubeAPIServerServingCAData)
	for _, r := range slices.Concat(s.ImageRegistryBundleData, s.ImageRegistryBundleUserData) {
		add(r.File, r.Data)
	}
	return map[string]any{"observedGeneration": 1, "controllerCertificates": certificates, "conditions": []any{
		map[string]any{"type": "TemplateControllerCompleted", "status": "True", "message": "sync completed", "reason": "",
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}}
}

func mustEncode(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("controllerconfig: " + err.Error())
	}
	return []byte(b.String())
}

func mustDecode(b []byte, v any) {
	if err := json.Unmarshal(b, v); err != nil {
		panic("controllerconfig: " + err.Error())
	}
}
