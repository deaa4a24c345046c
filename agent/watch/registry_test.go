// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"net"
	"path"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/objects"
)

func TestRegistryNameReplacesEveryDoubleDot(t *testing.T) {
	for file, want := range map[string]string{"r..5000": "r:5000", "a..b..5000": "a:b:5000", "...": ":.",
		"plain": "plain"} {
		if got := RegistryName(file); got != want {
			t.Errorf("%q became %q, want %q", file, got, want)
		}
	}
}

// FuzzRegistryName: whatever the ControllerConfig calls a registry, its directory is one plain element of a
// path that no other program reads as something else, or there is none.
func FuzzRegistryName(f *testing.F) {
	for _, s := range append(objects.Names(), "a..b", "....", "[::]..1", "a..0x10", "a..+1", "-a", "a-", "a.",
		strings.Repeat("a", 64)) {
		f.Add(s)
	}
	spec := plan.FileSpec{Field: plan.ImageRegistryBundleData, Path: "/etc/docker/certs.d/{name}/ca.crt"}
	f.Fuzz(func(t *testing.T, file string) {
		name := RegistryName(file)
		if strings.Contains(name, "..") {
			t.Errorf("%q becomes %q", file, name)
		}
		p, err := spec.PathOf(name)
		if err != nil {
			if strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Errorf("the reason holds control characters: %q", err)
			}
			return
		}
		if p != "/etc/docker/certs.d/"+name+"/ca.crt" || path.Clean(p) != p {
			t.Errorf("%q leads to %q", file, p)
		}
		if len(name) > 255 || strings.HasPrefix(name, ".") || strings.Contains(name, "..") ||
			strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '/' || r == '\\' || r >= 0x7f }) {
			t.Errorf("%q became the name %q", file, name)
		}
		if RegistryName(name) != name {
			t.Errorf("%q becomes %q, and that another name again", file, name)
		}
		if host, port, err := net.SplitHostPort(name); err == nil {
			if n, err := strconv.Atoi(port); host == "" || err != nil || n < 1 || n > 65535 {
				t.Errorf("%q became host %q and port %q", file, host, port)
			}
		}
	})
}
