// SPDX-License-Identifier: Apache-2.0

package merge_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher/merge"
)

// FuzzMerge: whatever the sources and the ControllerConfig hold, what is published anew is valid for a node, holds no
// private key, depends on nothing but the input, and has every certificate that was there and may not go.
func FuzzMerge(f *testing.F) {
	for _, data := range [][]byte{nil, a, a[:100], []byte("# text\n"), bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")),
		slices.Concat(a, a, b), slices.Concat(b, []byte("x"), c)} {
		f.Add(data, a, slices.Concat(a, b), byte(0))
		f.Add(b, slices.Concat(b, c), data, byte(7))
	}
	f.Add(slices.Concat(a, key), b, a, byte(1))
	f.Fuzz(func(t *testing.T, one, two, published []byte, choice byte) {
		in := merge.Input{Key: root, Sources: sources(one, two), Published: published, Now: noon,
			Known: replaced(one)}
		if choice&1 != 0 {
			in.Removal.Policy = v1alpha1.Immediate
		}
		if choice&2 != 0 {
			in.MayGo = yes
		}
		if choice&4 != 0 {
			in.Key = plan.Key{Field: plan.ImageRegistryBundleData, Name: "registry:5000"}
		}
		r := merge.Merge(in)
		slices.Reverse(in.Sources)
		if again := merge.Merge(in); !bytes.Equal(r.Data, again.Data) {
			t.Errorf("the other order of sources gives\n%s\nand not\n%s", again.Data, r.Data)
		}
		if bytes.Equal(r.Data, published) {
			return
		}
		if bytes.Contains(r.Data, []byte("PRIVATE KEY")) {
			t.Errorf("publishes a private key:\n%s", r.Data)
		}
		spec, err := merge.SpecOf(in.Key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := spec.Check(r.Data); err != nil {
			t.Errorf("a node refuses this: %v\n%s", err, r.Data)
		}
		mayGo := choice&3 != 0 && usable(spec, one) && usable(spec, two)
		missing, _ := pki.Diff(pki.Read(r.Data).Certs, pki.Read(published).Certs)
		if len(missing) > 0 && !mayGo {
			t.Errorf("%d certificates went without permission", len(missing))
		}
	})
}

func usable(spec plan.FileSpec, data []byte) bool {
	_, err := spec.Entry("registry:5000", data, noon)
	return err == nil
}
