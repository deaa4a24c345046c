// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// certificate is a self-signed one in PEM; edit may change the template.
func certificate(tb testing.TB, name string, edit ...func(*x509.Certificate)) []byte {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return sign(tb, name, &key.PublicKey, key, edit...)
}

func sign(tb testing.TB, name string, public, key any, edit ...func(*x509.Certificate)) []byte {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	for _, f := range edit {
		f(c)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, key)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issuedLeaf is a certificate that cannot anchor trust: neither a CA nor self-issued.
func issuedLeaf(tb testing.TB) []byte {
	tb.Helper()
	key := rsaKey()
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"},
		NotAfter: time.Now().Add(time.Hour)}
	parent := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, parent, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// rsaCertificate has the size of the certificates in OpenShift's object; all share one key.
func rsaCertificate(tb testing.TB, name string) []byte {
	tb.Helper()
	key := rsaKey()
	return sign(tb, name, &key.PublicKey, key)
}

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

type fields map[string]any

// object renders a ControllerConfig whose spec holds f.
func object(tb testing.TB, f fields) []byte {
	tb.Helper()
	b, err := json.Marshal(fields{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
		"metadata": fields{"name": objectName, "uid": "5d0c7a0e-0001", "resourceVersion": "100"}, "spec": f})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

const objectName = "machine-config-controller"

// large renders an object as OpenShift's operator publishes it: about 100 KB, of which a third
// part is not ours.
func large(tb testing.TB) []byte {
	tb.Helper()
	var bundle []byte
	var registries, certificates []any
	for i := range 7 {
		bundle = append(bundle, rsaCertificate(tb, fmt.Sprintf("openshift-kube-apiserver-operator_signer-%d", i))...)
	}
	for i := range 20 {
		name := fmt.Sprintf("registry-%02d.example.internal..5000", i)
		data := append(rsaCertificate(tb, name), rsaCertificate(tb, name+"-intermediate")...)
		registries = append(registries, fields{"file": name, "data": data})
	}
	for i := range 27 {
		certificates = append(certificates, fields{"bundleFile": "KubeAPIServerServingCAData",
			"subject": fmt.Sprintf("CN=signer-%d,OU=openshift", i),
			"signer":  fmt.Sprintf("CN=signer-%d,OU=openshift", i), "notBefore": "2026-01-01T00:00:00Z",
			"notAfter": "2027-01-01T00:00:00Z"})
	}
	images := fields{}
	for i := range 40 {
		images[fmt.Sprintf("component-%02d", i)] = fmt.Sprintf("quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:%064x",
			i)
	}
	b, err := json.Marshal(fields{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
		"metadata": fields{"name": objectName, "uid": "5d0c7a0e-0001", "resourceVersion": "100", "annotations": fields{
			"machineconfiguration.openshift.io/generated-by-version": "v4.21.0", annotationPrefix + "pause": "until tuesday"}},
		"spec": fields{"clusterDNSIP": "172.30.0.10", "platform": "none", "images": images, "proxy": nil,
			"kubeAPIServerServingCAData": bundle, "rootCAData": rsaCertificate(tb, "root-ca"),
			"cloudProviderCAData": rsaCertificate(tb, "cloud-ca"), "additionalTrustBundle": rsaCertificate(tb, "corporate"),
			"imageRegistryBundleData": registries, "internalRegistryPullSecret": fmt.Appendf(nil, "%01600x", 7),
			"infra": fields{"spec": fields{"platformSpec": fields{"type": "None"}},
				"status": fields{"platformStatus": fields{"type": "None"}}}},
		"status": fields{"observedGeneration": 1, "controllerCertificates": certificates}})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// line renders a watch event.
func line(kind string, object []byte) []byte {
	return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", kind, object)
}

// specs is a file table with every field.
func specs() []plan.FileSpec {
	bundle := func(id plan.Field, file string) plan.FileSpec {
		return plan.FileSpec{Field: id, Path: file, Mode: 0o644}
	}
	return []plan.FileSpec{
		bundle(plan.KubeAPIServerServingCAData, "/etc/kubernetes/kubelet-ca.crt"),
		bundle(plan.CloudProviderCAData, "/etc/kubernetes/cloud.pem"),
		bundle(plan.RootCAData, "/etc/kubernetes/ca.crt"),
		bundle(plan.AdditionalTrustBundle, "/etc/pki/anchors/user-ca-bundle.crt"),
		bundle(plan.ImageRegistryBundleData, "/etc/docker/certs.d/{name}/ca.crt"),
		bundle(plan.ImageRegistryBundleUserData, "/etc/docker/certs.d/{name}/ca.crt"),
	}
}
