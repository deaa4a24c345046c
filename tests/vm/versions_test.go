// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"maps"
	"strings"
	"testing"
)

// TestTheJudgeFindsEachFault is about what decides whether a power cut did harm.
func TestTheJudgeFindsEachFault(t *testing.T) {
	v := newVersions(3)
	own := func(n int) string { return certsD + v.own(n) + "/ca.crt" }
	for name, c := range map[string]struct {
		change           func(found map[string][]byte)
		wrong, leftovers int
		mixed            bool
	}{
		"nothing happened": {change: func(map[string][]byte) {}},
		"all is done": {change: func(f map[string][]byte) {
			clear(f)
			maps.Copy(f, v.files(1))
			maps.Copy(f, foreign)
		}},
		"one is done":            {change: func(f map[string][]byte) { f[rootCA] = v.ca(1) }, mixed: true},
		"one is added":           {change: func(f map[string][]byte) { f[own(1)] = v.ca(1) }, mixed: true},
		"one is removed":         {change: func(f map[string][]byte) { delete(f, own(0)) }, mixed: true},
		"a temporary file":       {change: func(f map[string][]byte) { f["/etc/kubernetes/.ca.crt123"] = nil }, leftovers: 1},
		"too old":                {change: func(f map[string][]byte) { f[rootCA] = v.ca(2) }, wrong: 1},
		"empty":                  {change: func(f map[string][]byte) { f[rootCA] = nil }, wrong: 1},
		"empty and not expected": {change: func(f map[string][]byte) { f[own(2)] = []byte{} }, wrong: 1},
		"cut off": {change: func(f map[string][]byte) { f[rootCA] = bytes.TrimSuffix(v.ca(0), []byte("\n")) },
			wrong: 1},
		"gone":             {change: func(f map[string][]byte) { delete(f, rootCA) }, wrong: 1},
		"nobody's":         {change: func(f map[string][]byte) { f["/etc/kubernetes/ca.crt123"] = []byte("x") }, wrong: 1},
		"theirs is gone":   {change: func(f map[string][]byte) { delete(f, "/etc/kubernetes/kubeadm.conf") }, wrong: 1},
		"theirs was swept": {change: func(f map[string][]byte) { delete(f, certsD+"theirs/.ca.crt.1") }, wrong: 1},
	} {
		found := v.files(0)
		maps.Copy(found, foreign)
		c.change(found)
		wrong, mixed, leftovers := judge(found, v.files, 0, 1)
		if len(wrong) != c.wrong || mixed != c.mixed && c.wrong == 0 || leftovers != c.leftovers {
			t.Errorf("%s: mixed %v, %d leftovers, want %v and %d, and %d wrong:\n%s", name, mixed, leftovers, c.mixed,
				c.leftovers, c.wrong, strings.Join(wrong, "\n"))
		}
	}
}
