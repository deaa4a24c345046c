// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// version is the n-th content of a file: of another length than the one before, and such that a part
// of it, or of two, is no version.
func version(n int64) []byte {
	line := fmt.Sprintf("version %d\n", n)
	return []byte(strings.Repeat(line, 100+int(n%100)))
}

// numberOf reads a version's number, or fails if b is not exactly one version.
func numberOf(b []byte) (int64, error) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	n, err := strconv.ParseInt(strings.TrimPrefix(string(line), "version "), 10, 64)
	if err == nil && !bytes.Equal(b, version(n)) {
		err = fmt.Errorf("%d bytes that are not version %d", len(b), n)
	}
	return n, err
}

// look reads a target as its consumer does. Of a file in which only a part is ours, the rest has to be there.
func look(at Target) ([]byte, error) {
	b, err := os.ReadFile(at.Path)
	if at.Editor == nil || err != nil {
		return b, err
	}
	part, whole := bytes.CutPrefix(b, []byte("token|"))
	part, end := bytes.CutSuffix(part, []byte("|token"))
	if !whole || !end {
		return nil, fmt.Errorf("%d bytes of what is not ours and no more", len(b))
	}
	return part, nil
}

// rotate replaces 25 files again and again, in directories of their own and together in one, and a part of
// one more, while others read them in a tight loop. Whoever looks must find a version, whole, and neither older than
// the last commit that ended nor newer than the last that began.
func rotate(t *testing.T, rotations int64) (looks int64) {
	t.Helper()
	dir := files{"etc/config": "token|version 0|token", "certs.d/": "", "real/": ""}.make(t)
	var targets []Target
	for i := range 21 {
		targets = append(targets, target(t, filepath.Join(dir, registries), fmt.Sprintf("r%d.example:5000", i)))
	}
	for _, name := range []string{"kubelet-ca.crt", "ca.crt", "bundle.pem", "anchors.crt"} {
		targets = append(targets, target(t, filepath.Join(dir, "etc", name), ""))
	}
	targets = append(targets, inPart(dir, "etc/config"))
	tree := open(t, "/")
	var begun, ended atomic.Int64
	publish := func(n int64) {
		begun.Store(n)
		changes := make([]Change, len(targets))
		for i, at := range targets {
			changes[i] = Change{at, version(n)}
		}
		if err := tree.Commit(changes, nil); err != nil {
			t.Fatal(err)
		}
		ended.Store(n)
	}
	publish(1)
	own, err := os.Stat(filepath.Dir(targets[0].Path))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var counted atomic.Int64
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					counted.Add(int64(i))
					return
				default:
				}
				oldest := ended.Load()
				b, err := look(targets[i%len(targets)])
				if err == nil {
					var n int64
					if n, err = numberOf(b); err == nil && (n < oldest || n > begun.Load()) {
						err = fmt.Errorf("version %d between commits %d and %d", n, oldest, begun.Load())
					}
				}
				if err != nil {
					t.Errorf("a reader of %s found %v", targets[i%len(targets)].Path, err)
					return
				}
			}
		})
	}
	for n := int64(2); n <= rotations+1; n++ {
		publish(n)
	}
	close(done)
	readers.Wait()
	if now, err := os.Stat(filepath.Dir(targets[0].Path)); err != nil || !os.SameFile(own, now) {
		t.Errorf("the registry's directory was replaced (%v)", err)
	}
	return counted.Load()
}

func TestAReaderFindsOldOrNewAndNeverNothing(t *testing.T) {
	if looks := rotate(t, 20); looks < 100 && !t.Failed() {
		t.Errorf("only %d looks", looks)
	}
}
