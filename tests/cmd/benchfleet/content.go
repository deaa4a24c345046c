// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// registries is how many image registries the object has, as in the command bench.
const registries = 21

// Places of the files, below the root of a node: those of the shipped profile.
const (
	kubeletCA = "/etc/kubernetes/kubelet-ca.crt"
	rootCA    = "/etc/kubernetes/ca.crt"
	cloudCA   = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
	anchors   = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"
	certsD    = "/etc/docker/certs.d/"
)

// content is what the object holds, and how it goes on.
type content struct {
	spec   controllerconfig.Spec
	signer *testpki.Authority
	serial int
}

func newContent() *content {
	c := &content{spec: controllerconfig.Typical(registries), signer: testpki.New("rotated", testpki.RSA)}
	c.spec.InternalRegistryPullSecret = nil // it is off by default
	return c
}

// rotate replaces the oldest certificate of the kubelet's bundle by a new one, and returns what to patch.
func (c *content) rotate() controllerconfig.Spec {
	_, newer := pem.Decode(c.spec.KubeAPIServerServingCAData)
	c.spec.KubeAPIServerServingCAData = append(slices.Clone(newer), c.fresh()...)
	return controllerconfig.Spec{KubeAPIServerServingCAData: c.spec.KubeAPIServerServingCAData}
}

// fresh is another certificate.
func (c *content) fresh() []byte {
	c.serial++
	return c.signer.Renew(fmt.Sprintf("rotated-%d", c.serial)).PEM()
}

// files are the places of all files and what belongs there.
func (c *content) files() map[string][]byte {
	f := map[string][]byte{kubeletCA: c.spec.KubeAPIServerServingCAData, rootCA: c.spec.RootCAData,
		cloudCA: c.spec.CloudProviderCAData, anchors: c.spec.AdditionalTrustBundle}
	for _, r := range c.spec.ImageRegistryBundleData {
		f[certsD+strings.ReplaceAll(r.File, "..", ":")+"/ca.crt"] = r.Data
	}
	return f
}

// directories are those that a node has to have before.
func directories() []string {
	return []string{filepath.Dir(kubeletCA), filepath.Dir(cloudCA), filepath.Dir(anchors), certsD}
}
