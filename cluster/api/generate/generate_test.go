// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGeneratingAgainChangesNothing runs what `make generate` runs, into other directories.
func TestGeneratingAgainChangesNothing(t *testing.T) {
	crds, code, docs := t.TempDir(), t.TempDir(), t.TempDir()
	cmd := exec.Command("make", "-C", "../../..", "--no-print-directory", "generate",
		"GENERATED_CRD="+crds, "GENERATED_GO="+code, "GENERATED_DOC="+docs)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const kinds = "../../../packaging/kubernetes"
	for _, file := range []struct{ name, generated, stored string }{
		{"crd/controllerconfigs.node-cert-agent.io.yaml", crds, kinds},
		{"crd/nodecertificatestates.node-cert-agent.io.yaml", crds, kinds},
		{"components/publisher/node-cert-agent.io_nodebundles.yaml", crds, kinds},
		{"api.md", docs, "../../../docs"},
		{"zz_generated.deepcopy.go", code, "../v1alpha1"},
	} {
		want, err := os.ReadFile(filepath.Join(file.generated, file.name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(file.stored, file.name)); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the types say (%v); make generate", file.name, err)
		}
	}
}
