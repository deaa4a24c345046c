// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNobodyWhoSwapsNamesLeadsUsElsewhere has somebody exchange a registry's directory, or its file, for a link
// and back, as fast as he can, while we look and commit. It can only fail if we follow one of them.
func TestNobodyWhoSwapsNamesLeadsUsElsewhere(t *testing.T) {
	for what, swap := range map[string][3]string{
		"the directory": {"certs.d/evil", "certs.d/link", "../outside"},
		"the file":      {"certs.d/evil/ca.crt", "certs.d/evil/link", "client.key"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := files{"outside/ca.crt": "SECRET", "certs.d/evil/ca.crt": "theirs",
				"certs.d/evil/client.key": "SECRET"}.make(t)
			tree, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			in := func(p string) string { return filepath.Join(dir, p) }
			stop := make(chan struct{})
			var swapping sync.WaitGroup
			swapping.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					// A commit may have replaced the link itself, which does no harm.
					_ = os.Remove(in(swap[1]))
					_ = os.Symlink(swap[2], in(swap[1]))
					for range 50 {
						exchange(in(swap[0]), in(swap[1]))
					}
				}
			})
			tempt(t, tree)
			close(stop)
			swapping.Wait()
			names, _ := os.ReadDir(in("outside"))
			if got, err := os.ReadFile(in("outside/ca.crt")); string(got) != "SECRET" || err != nil || len(names) != 1 {
				t.Errorf("outside there are %v and %q, %v", names, got, err)
			}
		})
	}
}

// tempt looks and commits where the names do not stay what they are.
func tempt(t *testing.T, tree *Tree) {
	t.Helper()
	target := Target{Path: "/certs.d/evil/ca.crt", Mode: 0o644, UID: -1, GID: -1, OwnDirectory: true}
	for i := range 5000 {
		for f := range tree.Observe([]Query{{Target: target}}) {
			if bytes.Contains(f.Data, []byte("SECRET")) {
				t.Error("a look was led to the secret")
				return
			}
		}
		if i%100 == 0 {
			_ = tree.Commit([]Change{{Target: target, Data: []byte("ours")}}, nil)
		}
	}
}

// exchange swaps two names in one step. One of them may be missing for the moment.
func exchange(a, b string) {
	_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
