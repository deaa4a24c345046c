// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"path"
	"strings"
	"testing"
)

func TestRegistryNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"registry.example.com":            true,
		"registry.example.com:5000":       true,
		"REGISTRY:5000":                   true,
		"10.0.0.1:443":                    true,
		"[fd00::1]:5000":                  true,
		"[fd00::1]":                       true,
		"image_registry.svc":              true,
		"":                                false,
		".":                               false,
		"..":                              false,
		":5000":                           false,
		"a:b:5000":                        false,
		"a:0":                             false,
		"a:05":                            false,
		"a:65536":                         false,
		"a:":                              false,
		".hidden":                         false,
		"trailing.":                       false,
		"-a":                              false,
		"a/b":                             false,
		"a\x00b":                          false,
		"[fd00::1%eth0]":                  false,
		"[10.0.0.1]":                      false,
		"fd00::1":                         false,
		"a b":                             false,
		strings.Repeat("a.", 127) + "a":   true,
		strings.Repeat("a.", 127) + "a.b": false,
		strings.Repeat("a", 64):           false,
	} {
		if err := checkRegistryName(name); (err == nil) != ok {
			t.Errorf("%q: %v, want ok=%v", name, err, ok)
		}
	}
}

func TestPathsOfFields(t *testing.T) {
	split := FileSpec{Field: AdditionalTrustBundle, Path: "/usr/local/share/ca-certificates/ca-{sha256}.crt"}
	registry := FileSpec{Field: ImageRegistryBundleData, Path: "/etc/docker/certs.d/{name}/ca.crt"}
	single := FileSpec{Field: RootCAData, Path: "/etc/kubernetes/ca.crt"}
	fp := DigestOf([]byte("x")).String()
	for sentence, c := range map[string]struct {
		spec FileSpec
		name string
		want string
	}{
		"a single file has no name":            {single, "", "/etc/kubernetes/ca.crt"},
		"a single file takes no name":          {single, "x", ""},
		"a registry is a directory":            {registry, "r:5000", "/etc/docker/certs.d/r:5000/ca.crt"},
		"a registry needs a name":              {registry, "", ""},
		"a fingerprint is part of a file name": {split, fp, "/usr/local/share/ca-certificates/ca-" + fp + ".crt"},
		"a fingerprint is lower case":          {split, strings.ToUpper(fp), ""},
		"a fingerprint is nothing else":        {split, "../x", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got, err := c.spec.PathOf(c.name); got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	if d := registry.Directory(); d != "/etc/docker/certs.d" || !registry.OwnDirectory() {
		t.Errorf("registries live in %q", d)
	}
	if d := split.Directory(); d != "/usr/local/share/ca-certificates" || split.OwnDirectory() {
		t.Errorf("split bundles live in %q", d)
	}
}

// FuzzPath holds the one promise that matters: no name leads out of the directory.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"r:5000", "..", "a/../../b", "[::1]:1", "x\x00"} {
		f.Add(s)
	}
	spec := FileSpec{Field: ImageRegistryBundleData, Path: "/etc/docker/certs.d/{name}/ca.crt"}
	f.Fuzz(func(t *testing.T, name string) {
		p, err := spec.PathOf(name)
		if err != nil {
			return
		}
		if path.Clean(p) != p || path.Dir(path.Dir(p)) != "/etc/docker/certs.d" || path.Base(p) != "ca.crt" {
			t.Errorf("%q leads to %q", name, p)
		}
	})
}

func TestAFileThatIsEditedMayHaveAnyModeAndOwner(t *testing.T) {
	ca := []byte("x")
	for id, want := range map[Field]int{KubeconfigCAData: 0, KubeletKubeconfigCAData: 0, RootCAData: 1} {
		e := Entry{Key: Key{Field: id}, Data: ca, Digest: DigestOf(ca)}
		p := Compute(Input{Desired: Desired{Entries: []Entry{e}}, Policy: Policy{Files: []FileSpec{{Field: id, Path: "/f",
			Mode: 0o644}}},
			Observed: Observed{e.Key: {Kind: Regular, Digest: e.Digest, Mode: 0o600, UID: 1, GID: 2}}})
		if len(p.Writes) != want {
			t.Errorf("%s: %d writes because of mode and owner, want %d", id, len(p.Writes), want)
		}
	}
}
