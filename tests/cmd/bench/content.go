// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// registries is how many image registries the object has: with the other bundles, 25 files.
const registries = 21

// Places of the files, below the root of whoever keeps them: those of the shipped profile.
const (
	kubeletCA = "/etc/kubernetes/kubelet-ca.crt"
	rootCA    = "/etc/kubernetes/ca.crt"
	cloudCA   = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
	anchors   = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"
	certsD    = "/etc/docker/certs.d/"
)

// content is what an object holds, and how it goes on.
type content struct {
	spec   controllerconfig.Spec
	signer *testpki.Authority
	serial int
}

func newContent() *content {
	return &content{spec: controllerconfig.Typical(registries), signer: testpki.New("rotated", testpki.RSA)}
}

// rotate replaces the oldest certificate of the kubelet's bundle by a new one, and returns what to
// patch.
func (c *content) rotate() controllerconfig.Spec {
	c.spec.KubeAPIServerServingCAData = c.next(c.spec.KubeAPIServerServingCAData)
	return controllerconfig.Spec{KubeAPIServerServingCAData: c.spec.KubeAPIServerServingCAData}
}

// rotateAll is rotate for every bundle.
func (c *content) rotateAll() controllerconfig.Spec {
	s := &c.spec
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

func (c *content) next(bundle []byte) []byte {
	c.serial++
	_, newer := pem.Decode(bundle)
	return append(slices.Clone(newer), c.signer.Renew(fmt.Sprintf("rotated-%d", c.serial)).PEM()...)
}

// files are the places and the content that a spec asks for.
func files(s controllerconfig.Spec) map[string][]byte {
	f := map[string][]byte{kubeletCA: s.KubeAPIServerServingCAData, rootCA: s.RootCAData, cloudCA: s.CloudProviderCAData,
		anchors: s.AdditionalTrustBundle}
	for _, r := range s.ImageRegistryBundleData {
		f[certsD+strings.ReplaceAll(r.File, "..", ":")+"/ca.crt"] = r.Data
	}
	for place, data := range f {
		if len(data) == 0 {
			delete(f, place)
		}
	}
	return f
}
