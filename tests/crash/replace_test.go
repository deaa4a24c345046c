// SPDX-License-Identifier: Apache-2.0

//go:build real

package crash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pairTree is the directory of a signer: a pair, and its state.
type pairTree struct {
	*testing.T
	binary, dir string
}

// reset makes the old pair, and with "restore" or "keep" a signer that has renewed it.
func (p *pairTree) reset(word string) {
	p.Helper()
	if err := errors.Join(os.RemoveAll(p.dir), os.MkdirAll(filepath.Join(p.dir, "etc"), 0o755),
		os.Mkdir(filepath.Join(p.dir, "state"), 0o700), os.WriteFile(filepath.Join(p.dir, "etc/a.key"), []byte("old key\n"), 0o600),
		os.WriteFile(filepath.Join(p.dir, "etc/a.crt"), []byte("old leaf\n"), 0o644)); err != nil {
		p.Fatal(err)
	}
	if word != "renew" {
		p.run("renew")
	}
}

func (p *pairTree) run(words ...string) string {
	p.Helper()
	out, err := exec.Command(p.binary, append(words, p.dir)...).CombinedOutput()
	if err != nil {
		p.Fatalf("%s: %v: %s", words, err, out)
	}
	return strings.TrimSpace(string(out))
}

// holds is what the pair holds: old, new, or both in a word.
func (p *pairTree) holds() string {
	p.Helper()
	key, err := os.ReadFile(filepath.Join(p.dir, "etc/a.key"))
	leaf, err2 := os.ReadFile(filepath.Join(p.dir, "etc/a.crt"))
	if err != nil || err2 != nil {
		p.Fatal(err, err2)
	}
	k, l := strings.TrimSuffix(string(key), " key\n"), strings.TrimSuffix(string(leaf), " leaf\n")
	if k == l {
		return k
	}
	return k + " key, " + l + " leaf"
}

// calls counts the system calls of one word by name.
func (p *pairTree) calls(word string) map[string]int {
	p.Helper()
	p.reset(word)
	log := filepath.Join(p.TempDir(), "log")
	if code, stderr := strace(log, []string{p.binary, word, p.dir}, "-e", "trace=%file,%desc"); code != 0 {
		p.Fatalf("strace ends with %d: %s", code, stderr)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		p.Fatal(err)
	}
	n := map[string]int{}
	thread, _, _ := bytes.Cut(b, []byte(" "))
	for _, m := range regexp.MustCompile(`(?m)^([0-9]+) +([a-z0-9_]+)\(`).FindAllSubmatch(b, -1) {
		if bytes.Equal(m[1], thread) && !slices.Contains(runtimes, string(m[2])) {
			n[string(m[2])]++
		}
	}
	return n
}

// TestAPairIsOfOneGenerationWhereverTheSignerIsKilled kills it at every system call of a renewal, a restoration and the
// end of one that was kept.
func TestAPairIsOfOneGenerationWhereverTheSignerIsKilled(t *testing.T) {
	binary := buildProgram(t, "./testdata/replace")
	for word, ends := range map[string][]string{
		"renew":   {"old, waiting:", "new, waiting: a"},
		"restore": {"new, waiting: a", "old, waiting:"},
		"keep":    {"new, waiting: a", "new, waiting:"},
	} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			p := &pairTree{t, binary, filepath.Join(t.TempDir(), "host")}
			kills, torn, seen := 0, 0, map[string]int{}
			for name, count := range p.calls(word) {
				for i := 1; i <= count; i++ {
					end, wasTorn := p.kill(word, name, i)
					kills++
					if wasTorn {
						torn++
					}
					if seen[end]++; !slices.Contains(ends, end) {
						t.Errorf("killed at %s %d: in the end it is %q", name, i, end)
					}
				}
			}
			t.Logf("%d kills, %d of them between the renames: %v", kills, torn, seen)
			if len(seen) != len(ends) || (torn > 0) != (word != "keep") {
				t.Errorf("it ended with %v, want each of %q; %d times it was killed between the renames", seen, ends, torn)
			}
		})
	}
}

// kill kills the signer at the i-th call of a name, and has the next one recover.
func (p *pairTree) kill(word, name string, i int) (end string, torn bool) {
	p.Helper()
	p.reset(word)
	code, stderr := strace(os.DevNull, []string{p.binary, word, p.dir}, "-e", "trace="+name,
		"-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", name, i))
	if code == 0 || code == 1 {
		p.Fatalf("%s, %s %d: was not killed: %d %s", word, name, i, code, stderr)
	}
	torn = strings.Contains(p.holds(), "key")
	said := p.run()
	if left, _ := filepath.Glob(filepath.Join(p.dir, "etc/.*")); len(left) > 0 {
		p.Errorf("%s, killed at %s %d: left are %q", word, name, i, left)
	}
	return p.holds() + ", " + said, torn
}
