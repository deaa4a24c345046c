// SPDX-License-Identifier: Apache-2.0

package controllerconfig

import (
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// Places of the files, below the root of whoever keeps them: those of the profile for OpenShift.
const (
	KubeletCA = "/etc/kubernetes/kubelet-ca.crt"
	RootCA    = "/etc/kubernetes/ca.crt"
	CloudCA   = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
	Anchors   = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"
	CertsD    = "/etc/docker/certs.d/"
)

// Content is what an object holds, and how it goes on.
type Content struct {
	Spec Spec
	// Signer makes each new certificate.
	Signer *testpki.Authority

	serial int
}

// NewContent is the typical content with so many image registries.
func NewContent(registries int) *Content {
	return &Content{Spec: Typical(registries), Signer: testpki.New("rotated", testpki.RSA)}
}

// Rotate replaces the oldest certificate of the kubelet's bundle by a new one, and returns what to patch.
func (c *Content) Rotate() Spec {
	c.Spec.KubeAPIServerServingCAData = c.next(c.Spec.KubeAPIServerServingCAData)
	return Spec{KubeAPIServerServingCAData: c.Spec.KubeAPIServerServingCAData}
}

// RotateAll is Rotate for every bundle.
func (c *Content) RotateAll() Spec {
	s := &c.Spec
	for _, b := range []*[]byte{&s.KubeAPIServerServingCAData, &s.RootCAData, &s.CloudProviderCAData,
		&s.AdditionalTrustBundle} {
		*b = c.next(*b)
	}
	list := slices.Clone(s.ImageRegistryBundleData)
	for i := range list {
		list[i].Data = c.next(list[i].Data)
	}
	s.ImageRegistryBundleData = list
	return *s
}

// Fresh is another certificate.
func (c *Content) Fresh() []byte {
	c.serial++
	return c.Signer.Renew(fmt.Sprintf("rotated-%d", c.serial)).PEM()
}

func (c *Content) next(bundle []byte) []byte {
	_, newer := pem.Decode(bundle)
	return append(slices.Clone(newer), c.Fresh()...)
}

// Files are the places and the content that a spec asks for, without the pull secret.
func Files(s Spec) map[string][]byte {
	f := map[string][]byte{KubeletCA: s.KubeAPIServerServingCAData, RootCA: s.RootCAData, CloudCA: s.CloudProviderCAData,
		Anchors: s.AdditionalTrustBundle}
	for _, r := range s.ImageRegistryBundleData {
		f[CertsD+strings.ReplaceAll(r.File, "..", ":")+"/ca.crt"] = r.Data
	}
	for place, data := range f {
		if len(data) == 0 {
			delete(f, place)
		}
	}
	return f
}
