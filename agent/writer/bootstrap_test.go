// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// credentialStore is either half as far as credentials go.
type credentialStore interface {
	Bootstrap(context.Context) ([]bootstrap.Credential, error)
	Consume(context.Context, plan.Digest) (string, error)
}

// withCredentials is a host with two good credentials and a bad one, seen directly and over a socket.
func withCredentials(t *testing.T, c Consume) (halves map[string]credentialStore, dir string) {
	t.Helper()
	local, root := newLocal(t)
	dir = filepath.Join(root, bootstrapDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"10-a.kubeconfig": 0o600, "20-b.kubeconfig": 0o600,
		"30-open.kubeconfig": 0o644, "README": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("content of "+name), mode); err != nil {
			t.Fatal(err)
		}
	}
	local = local.WithCredentials(c, false)
	return map[string]credentialStore{"local": local, "socket": Dial(serve(t, local).socket)}, dir
}

func names(t *testing.T, k credentialStore) string {
	t.Helper()
	all, err := k.Bootstrap(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range all {
		if c.Refused == "" && (string(c.Content.Reveal()) != "content of "+c.Name ||
			c.Digest != plan.DigestOf(c.Content.Reveal())) {
			t.Errorf("%s has another content or digest", c.Name)
		}
		if c.Refused != "" {
			c.Name += " " + c.Refused
		}
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

func TestCredentialsAreConsumedAsConfigured(t *testing.T) {
	const a, rest = "10-a.kubeconfig, ",
		"20-b.kubeconfig, 30-open.kubeconfig has mode 0644, want nothing for group and others"
	digest := plan.DigestOf([]byte("content of 10-a.kubeconfig"))
	for mode, want := range map[Consume]struct {
		done, after string
		file        bool
	}{
		Delete:   {"10-a.kubeconfig deleted", rest, false},
		MarkUsed: {"10-a.kubeconfig marked used", rest, true},
		Keep:     {"", a + rest, true},
	} {
		for _, side := range []string{"local", "socket"} {
			t.Run(string(mode)+" over "+side, func(t *testing.T) {
				halves, dir := withCredentials(t, mode)
				k := halves[side]
				if got := names(t, k); got != a+rest {
					t.Errorf("before: %s", got)
				}
				if done, err := k.Consume(t.Context(), digest); err != nil || done != want.done {
					t.Errorf("done %q, %v; want %q", done, err, want.done)
				}
				if got := names(t, k); got != want.after {
					t.Errorf("after: %s", got)
				}
				if done, err := k.Consume(t.Context(), digest); err != nil || mode != Keep && done != "" {
					t.Errorf("a second time: %q, %v", done, err)
				}
				_, err := os.Stat(filepath.Join(dir, "10-a.kubeconfig"))
				if got := !errors.Is(err, fs.ErrNotExist); got != want.file {
					t.Errorf("the file is there: %v", got)
				}
			})
		}
	}
}

func TestAUsedFileWithNewContentIsAnotherCredential(t *testing.T) {
	halves, dir := withCredentials(t, MarkUsed)
	k := halves["local"]
	if _, err := k.Consume(t.Context(), plan.DigestOf([]byte("content of 10-a.kubeconfig"))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "10-a.kubeconfig"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := k.Bootstrap(t.Context())
	if err != nil || len(all) != 3 || string(all[0].Content.Reveal()) != "new" {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestAHostWithoutABootstrapDirectoryHasNoCredentials(t *testing.T) {
	tree, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if all, err := New(nil, tree, valid).Bootstrap(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestTheKubeletsPairIsHandedOutOnlyIfAllowed(t *testing.T) {
	local, root := newLocal(t)
	dir := filepath.Join(root, filepath.Dir(kubeletPair))
	dated := filepath.Join(dir, "kubelet-client-2026-11-21-12-00-00.pem")
	for _, err := range []error{os.MkdirAll(dir, 0o755), os.WriteFile(dated, []byte("content of the kubelet"), 0o600),
		os.Symlink(filepath.Base(dated), filepath.Join(root, kubeletPair))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, local); got != "" {
		t.Errorf("handed out without being asked: %s", got)
	}
	local = local.WithCredentials(Delete, true)
	if got := names(t, local); got != bootstrap.Kubelet {
		t.Errorf("handed out: %s", got)
	}
	if done, err := local.Consume(t.Context(), plan.DigestOf([]byte("content of the kubelet"))); err != nil || done != "" {
		t.Errorf("consumed: %q, %v", done, err)
	}
	if err := os.Chmod(dated, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := names(t, local); !strings.HasPrefix(got, bootstrap.Kubelet+" its client certificate is not a private file") {
		t.Errorf("readable by all: %s", got)
	}
}
