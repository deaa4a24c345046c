// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGeneratingAgainChangesNothing runs what `make generate` runs, into other directories.
func TestGeneratingAgainChangesNothing(t *testing.T) {
	crds, code := t.TempDir(), t.TempDir()
	cmd := exec.Command("make", "-C", "../../..", "--no-print-directory", "generate",
		"GENERATED_CRD="+crds, "GENERATED_GO="+code)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for generated, stored := range map[string]string{
		filepath.Join(crds, "node-cert-agent.io_nodebundles.yaml"): "../../../packaging/kubernetes/components/publisher",
		filepath.Join(code, "zz_generated.deepcopy.go"):            "../v1alpha1",
	} {
		want, err := os.ReadFile(generated)
		if err != nil {
			t.Fatal(err)
		}
		stored = filepath.Join(stored, filepath.Base(generated))
		if got, err := os.ReadFile(stored); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the types say (%v); make generate", stored, err)
		}
	}
}
