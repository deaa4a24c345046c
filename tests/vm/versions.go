// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// registries are those that every version has; each has one more of its own, which comes and goes.
const registries = 20

// versions are contents of the object, each with a CA of its own in every file. After the last comes the first.
type versions [][]byte

func newVersions(n int) (v versions) {
	for i := range n {
		v = append(v, testpki.NewCA(fmt.Sprintf("version %d", i)))
	}
	return v
}

func (v versions) ca(n int) []byte { return v[n%len(v)] }

// own is the registry of one version.
func (v versions) own(n int) string { return fmt.Sprintf("own%d.example", n%len(v)) }

// object is what apply(8) is given.
func (v versions) object(n int) []byte {
	ca := v.ca(n)
	s := controllerconfig.Spec{KubeAPIServerServingCAData: ca, RootCAData: ca, CloudProviderCAData: ca,
		AdditionalTrustBundle: ca}
	for i := range registries {
		s.ImageRegistryBundleData = append(s.ImageRegistryBundleData,
			controllerconfig.Registry{File: fmt.Sprintf("registry%d..5000", i), Data: ca})
	}
	s.ImageRegistryBundleUserData = []controllerconfig.Registry{{File: v.own(n), Data: ca}}
	return controllerconfig.Object(controllerconfig.Small, s)
}

// Where a host with Debian's package has its files.
const (
	kubeletCA = "/etc/kubernetes/kubelet-ca.crt"
	cloudCA   = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
	rootCA    = "/etc/kubernetes/ca.crt"
	certsD    = "/etc/docker/certs.d/"
	anchors   = "/usr/local/share/ca-certificates/"
)

// fixed are the files of a version that every other has too.
func (v versions) fixed(n int) map[string][]byte {
	files := map[string][]byte{kubeletCA: v.ca(n), cloudCA: v.ca(n), rootCA: v.ca(n)}
	for i := range registries {
		files[fmt.Sprintf("%sregistry%d:5000/ca.crt", certsD, i)] = v.ca(n)
	}
	return files
}

// files are all files of a version.
func (v versions) files(n int) map[string][]byte {
	files := v.fixed(n)
	files[certsD+v.own(n)+"/ca.crt"] = v.ca(n)
	block, _ := pem.Decode(v.ca(n))
	sum := sha256.Sum256(block.Bytes)
	files[anchors+hex.EncodeToString(sum[:])+".crt"] = v.ca(n)
	return files
}

// foreign is what belongs to others in the same directories, and stays as it is.
var foreign = map[string][]byte{
	"/etc/kubernetes/kubeadm.conf": []byte("theirs\n"),
	certsD + "theirs/ca.crt":       []byte("theirs\n"),
	certsD + "theirs/.ca.crt.1":    []byte("theirs\n"),
	anchors + "theirs.crt":         []byte("theirs\n"),
}

// leftover is a temporary file of a commit that was cut short; the next sweep takes it.
var leftover = regexp.MustCompile(`/\.[^/]+\.(crt|pem)[0-9]{1,19}$`)

// judge says what is wrong with files that were found after a cut, where version acknowledged was said to be in
// place, and version begun may have been on its way: each has to be, as a whole, what one of the two has it to be.
func judge(found map[string][]byte, files func(n int) map[string][]byte, acknowledged, begun int) (wrong []string,
	mixed bool, leftovers int) {
	before, after := files(acknowledged), files(begun)
	names := maps.Clone(found)
	maps.Copy(names, before)
	maps.Copy(names, after)
	maps.Copy(names, foreign)
	older, newer := false, false
	for _, name := range slices.Sorted(maps.Keys(names)) {
		is := string(found[name]) // no file of a version is empty
		if theirs, known := foreign[name]; known {
			if is != string(theirs) {
				wrong = append(wrong, fmt.Sprintf("%s, which is not ours, holds %.60q", name, is))
			}
			continue
		}
		if before[name] == nil && after[name] == nil && leftover.MatchString(name) {
			leftovers++
			continue
		}
		asBefore, asAfter := is == string(before[name]), is == string(after[name])
		if _, there := found[name]; there && is == "" || !asBefore && !asAfter {
			wrong = append(wrong, fmt.Sprintf("%s holds %.60q: neither version %d nor %d", name, is, acknowledged, begun))
		}
		older, newer = older || asBefore && !asAfter, newer || asAfter && !asBefore
	}
	return wrong, older && newer, leftovers
}

// onDisk are the versions and what belongs to others, as files of a guest: NUMBER.json is what apply is given,
// NUMBER.crt the content of each file.
func (v versions) onDisk() map[string]host.File {
	out := map[string]host.File{}
	for n := range v {
		out[fmt.Sprintf("/root/versions/%d.json", n)] = host.File{Data: v.object(n)}
		out[fmt.Sprintf("/root/versions/%d.crt", n)] = host.File{Data: v.ca(n)}
	}
	for p, data := range foreign {
		out[path.Clean(p)] = host.File{Data: data}
	}
	return out
}
