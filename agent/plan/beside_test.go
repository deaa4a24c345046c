// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"io/fs"
	"slices"
	"testing"
	"time"
)

// besideBoth is policy beside both writers of OpenShift.
var besideBoth = func() Policy {
	p := Policy{Trust: Trust{Hold: time.Hour, Mirror: true}}
	for _, r := range policy.Files {
		p.Files = append(p.Files, r.With([]Writer{MachineConfigDaemon, NodeCA}))
	}
	return p
}()

func TestBesideOtherWriters(t *testing.T) {
	reg := entry(ImageRegistryBundleData, "r:5000", "a")
	on := func(e Entry, mode fs.FileMode, uid, gid int) Observed {
		return Observed{e.Key: {Kind: Regular, Digest: e.Digest, Mode: mode, UID: uid, GID: gid}}
	}
	closed := Observed{reg.Key: {Kind: Regular, Digest: entry(ImageRegistryBundleData, "r:5000", "b").Digest, Mode: 0o644,
		UID: 1001, Closed: true}}
	for sentence, c := range map[string]struct {
		desired  Desired
		observed Observed
		owned    map[string]Claim
		beside   string // what happens beside both
		alone    string // and without them
	}{
		"a registry's file of the node-ca daemon is not drift": {desired(reg), on(reg, 0o644, 1001, 0), nil,
			"[]", "[write /etc/docker/certs.d/r:5000/ca.crt mode +0 -0 own 1]"},
		"the same of another user is": {desired(reg), on(reg, 0o644, 1002, 0), nil,
			"[write /etc/docker/certs.d/r:5000/ca.crt mode +0 -0 own 1]",
			"[write /etc/docker/certs.d/r:5000/ca.crt mode +0 -0 own 1]"},
		"the node-ca daemon does not own other files": {desired(kubelet("a")), on(kubelet("a"), 0o644, 1001, 0), nil,
			"[write /etc/kubernetes/kubelet-ca.crt mode +0 -0]", "[write /etc/kubernetes/kubelet-ca.crt mode +0 -0]"},
		"a mode that grants less is kept": {desired(kubelet("a")), on(kubelet("a"), 0o600, 0, 0), nil,
			"[]", "[write /etc/kubernetes/kubelet-ca.crt mode +0 -0]"},
		"a mode that grants more is not": {desired(kubelet("a")), on(kubelet("a"), 0o666, 0, 0), nil,
			"[write /etc/kubernetes/kubelet-ca.crt mode +0 -0]", "[write /etc/kubernetes/kubelet-ca.crt mode +0 -0]"},
		"nor is one that keeps its owner out": {desired(kubelet("a")), on(kubelet("a"), 0o044, 0, 0), nil,
			"[write /etc/kubernetes/kubelet-ca.crt mode +0 -0]", "[write /etc/kubernetes/kubelet-ca.crt mode +0 -0]"},
		"a file that is no longer listed is theirs to remove": {desired(entry(ImageRegistryBundleData, "s", "a"),
			entry(ImageRegistryBundleData, "t", "a")),
			disk(reg, entry(ImageRegistryBundleData, "s", "a"), entry(ImageRegistryBundleData, "t", "a")),
			owned("/etc/docker/certs.d/r:5000/ca.crt", reg),
			"[retain imageRegistryBundleData/r:5000: whoever else writes these files removes it: machine-config-daemon and " +
				"node-ca]",
			"[remove /etc/docker/certs.d/r:5000/ca.crt]"},
		"and when they have removed it, it is forgotten": {desired(entry(ImageRegistryBundleData, "s", "a")),
			disk(entry(ImageRegistryBundleData, "s", "a")), owned("/etc/docker/certs.d/r:5000/ca.crt", reg),
			"[own 0]", "[remove /etc/docker/certs.d/r:5000/ca.crt]"},
		"a directory that keeps the writer out is left to its owner, and alone that is a refusal": {desired(reg), closed, nil,
			"[retain imageRegistryBundleData/r:5000: its directory belongs to somebody else, who keeps the writer out and is " +
				"left to it: machine-config-daemon and node-ca]",
			"[refuse imageRegistryBundleData/r:5000: its directory belongs to somebody else, who keeps the writer out]"},
	} {
		t.Run(sentence, func(t *testing.T) {
			in := Input{Desired: c.desired, Observed: c.observed, Memory: Memory{Owned: c.owned}, Policy: besideBoth,
				Known: known(reg, entry(ImageRegistryBundleData, "r:5000", "b"), kubelet("a"))}
			if got := brief(Compute(in)); got != c.beside {
				t.Errorf("beside them\n %s, want\n %s", got, c.beside)
			}
			in.Policy = policy
			if got := brief(Compute(in)); got != c.alone {
				t.Errorf("alone\n %s, want\n %s", got, c.alone)
			}
		})
	}
}

func TestBytesBesideOtherWritersAreTheirs(t *testing.T) {
	cut := bytes.TrimSuffix(cas["a"], []byte("\n"))
	for _, r := range besideBoth.Files {
		e, err := r.Entry("", cut, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		// The machine config daemon adds the newline to single files only.
		if added := bytes.HasSuffix(e.Data, []byte("\n")); added == r.Field.List() {
			t.Errorf("%s: a newline was added: %v", r.Field, added)
		}
		more := e.with(bundle(KubeAPIServerServingCAData, "", "b").Certs)
		if names(more.Data) != "ab" {
			t.Errorf("%s: with another certificate there are %q", r.Field, names(more.Data))
		}
	}
}

func TestNodeCAWritesRegistriesOnly(t *testing.T) {
	for _, r := range besideBoth.Files {
		if slices.Contains(r.Beside, NodeCA) != r.Field.List() || !slices.Contains(r.Beside, MachineConfigDaemon) {
			t.Errorf("%s is beside %v", r.Field, r.Beside)
		}
	}
}
