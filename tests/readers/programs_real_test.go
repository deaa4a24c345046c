// SPDX-License-Identifier: Apache-2.0

//go:build real

package readers_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/readers"
)

// written are the different contents of files that come of all publications, by a name. There are so
// many files of mutants, a hundred and more in each.
func written(t *testing.T, ofMutants int) map[string]plan.Entry {
	t.Helper()
	all := make(map[string]plan.Entry)
	seen := make(map[plan.Digest]bool)
	take := func(name string, data []byte) {
		for i, e := range accepted(data) {
			if !seen[e.Digest] {
				seen[e.Digest] = true
				all[fmt.Sprintf("%s, row %d", name, i+1)] = e
			}
		}
	}
	for _, f := range readers.Files() {
		take(f.Name, f.Data)
	}
	for i := range ofMutants {
		var data []byte
		for _, der := range mutants(uint64(100+i), 200) {
			if text := inPEM(der); len(accepted(text)) > 0 {
				data = append(data, text...)
			}
		}
		take(fmt.Sprintf("mutants %d", i), data)
	}
	if len(all) < 60 {
		t.Fatalf("only %d different files", len(all))
	}
	return all
}

// open is a directory that everybody may enter: p11-kit is not run as root.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "readers-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOpenSSLAndP11KitReadInEachAcceptedFileWhatWeRead(t *testing.T) {
	programs, err := readers.NewPrograms(open(t))
	if err != nil {
		t.Fatal(err)
	}
	files := written(t, 20)
	for name, read := range map[string]func(context.Context, []byte) (readers.Set, error){
		"OpenSSL": programs.OpenSSL, "OpenSSL's store": programs.Store, "p11-kit": programs.P11Kit,
	} {
		for file, e := range files {
			if got, err := read(t.Context(), e.Data); err != nil || !slices.Equal(got, readers.Expected(e.Certs)) {
				t.Errorf("%s: %s reads %d certificates (%v), we %d", file, name, len(got), err, len(e.Certs))
			}
		}
	}
	t.Logf("%d files", len(files))
}

// TestTheProgramsDiffer: the readers tell files apart that they read differently, or the test above could
// not fail.
func TestTheProgramsDiffer(t *testing.T) {
	programs, err := readers.NewPrograms(open(t))
	if err != nil {
		t.Fatal(err)
	}
	differ := 0
	for _, f := range readers.Files() {
		if _, err := pki.Parse(f.Data, pki.Options{AllowLeaf: true}); err == nil {
			continue
		}
		kubelet, _ := readers.ClientGo(f.Data)
		openssl, _ := programs.OpenSSL(t.Context(), f.Data)
		p11kit, _ := programs.P11Kit(t.Context(), f.Data)
		if !slices.Equal(kubelet, openssl) || !slices.Equal(kubelet, p11kit) {
			differ++
		}
	}
	t.Logf("%d refused files have more than one reading", differ)
	if differ < 50 {
		t.Errorf("only %d refused files have more than one reading", differ)
	}
}

// TestUpdateCACertificatesTakesWhatIsAccepted: on Debian each certificate of the bundle is a file. More than
// 256 of one subject have no place in a directory with hashes, hence few mutants.
func TestUpdateCACertificatesTakesWhatIsAccepted(t *testing.T) {
	dir := open(t)
	for _, name := range []string{"local", "shipped", "out", "hooks"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "conf"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var want []pki.Cert
	for _, e := range written(t, 1) {
		for _, c := range e.Certs {
			want = append(want, c)
			if err := os.WriteFile(filepath.Join(dir, "local", c.Fingerprint.String()+".crt"), c.PEM(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	said, err := exec.CommandContext(t.Context(), "update-ca-certificates", "--certsconf", filepath.Join(dir, "conf"),
		"--certsdir", filepath.Join(dir, "shipped"), "--localcertsdir", filepath.Join(dir, "local"),
		"--etccertsdir", filepath.Join(dir, "out"), "--hooksdir", filepath.Join(dir, "hooks")).CombinedOutput()
	if err != nil {
		t.Fatalf("update-ca-certificates: %v\n%s", err, said)
	}
	if strings.Contains(string(said), "skipping") {
		t.Errorf("it passes over some:\n%.2000s", said)
	}
	made, err := os.ReadFile(filepath.Join(dir, "out", "ca-certificates.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readers.ClientGo(made); err != nil || !slices.Equal(got, readers.Expected(want)) {
		t.Errorf("the store has %d certificates (%v), want %d", len(got), err, len(readers.Expected(want)))
	}
}

func TestAKubeletStartsWithEveryAcceptedFile(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for sentence, data := range map[string]string{"one newline": "\n", "text": "certificate\n"} {
		err := readers.Kubelet(ctx, binaries.Kubelet(), dir, []byte(data))
		if err == nil || !strings.Contains(err.Error(), "error loading CA bundle") {
			t.Fatalf("a kubelet with %s as its client CA file: %v", sentence, err)
		}
	}
	files := written(t, 5)
	for name, e := range files {
		if err := readers.Kubelet(ctx, binaries.Kubelet(), dir, e.Data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d files", len(files))
}
