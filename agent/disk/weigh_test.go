// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func TestWeighCountsEntriesAndTheirFiles(t *testing.T) {
	fingerprint := strings.Repeat("0123456789abcdef", 4)
	tree, err := Open(files{
		"certs.d/a/ca.crt": "12345", "certs.d/b:5000/ca.crt": "123", "certs.d/b:5000/client.key": "not counted",
		"certs.d/empty/other":       "x",
		"certs.d/not a name/ca.crt": "x", "certs.d/link/ca.crt": "-> ../a/ca.crt", "certs.d/.hidden/ca.crt": "x",
		"flat/nca-" + fingerprint + ".crt": "1234567", "flat/other.crt": "x",
	}.make(t))
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][2]int{
		"/certs.d/{name}/ca.crt": {4, 8}, "/flat/nca-{sha256}.crt": {1, 7}, "/none/{name}/ca.crt": {0, 0},
	} {
		entries, size := tree.Weigh(plan.FileSpec{Field: plan.ImageRegistryBundleData, Path: file})
		if entries != want[0] || size != int64(want[1]) {
			t.Errorf("%s has %d entries of %d bytes, want %v", file, entries, size, want)
		}
	}
}
