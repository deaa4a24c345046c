// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// Placeholders of FileSpec.Path. A field has at most one, and with one it manages many files.
const (
	// namePlaceholder stands for the registry's host[:port]; the element that holds it is a
	// directory of its own, as containers-certs.d(5) wants.
	namePlaceholder = "{name}"
	// fingerprintPlaceholder stands for the hexadecimal SHA-256 of one certificate: the bundle is
	// laid out one certificate a file, as update-ca-certificates(8) wants.
	fingerprintPlaceholder = "{sha256}"
)

// Many reports whether the field manages a file per entry.
func (r FileSpec) Many() bool { return r.byName() || r.ByFingerprint() }

func (r FileSpec) byName() bool { return strings.Contains(r.Path, namePlaceholder) }

// ByFingerprint reports whether the field manages a file per certificate.
func (r FileSpec) ByFingerprint() bool { return strings.Contains(r.Path, fingerprintPlaceholder) }

// CheckPlaceholders decides whether Path has the placeholders that the field may have: a registry's name is a
// directory of its own, made and removed with its one file; a fingerprint is part of a file's name.
func (r FileSpec) CheckPlaceholders() error {
	dir, base := path.Split(r.Path)
	want := ""
	switch {
	case r.Field.List():
		if path.Base(dir) != namePlaceholder {
			return fmt.Errorf("the directory above the file must be %s: there is one for each registry", namePlaceholder)
		}
		want = namePlaceholder
	case r.Field == AdditionalTrustBundle && strings.Contains(base, fingerprintPlaceholder):
		want = fingerprintPlaceholder
	}
	rest := r.Path
	if want != "" {
		rest = strings.Replace(rest, want, "", 1)
	}
	if strings.ContainsAny(rest, "{}") {
		return fmt.Errorf("braces are for placeholders: one %s as the directory above a registry's file, or one %s in "+
			"the name of %s's file", namePlaceholder, fingerprintPlaceholder, AdditionalTrustBundle)
	}
	return nil
}

// OwnDirectory reports whether each entry lives in a directory of its own, which is made (0755) with
// the file and removed, when empty, after it.
func (r FileSpec) OwnDirectory() bool { return strings.Contains(path.Dir(r.Path), namePlaceholder) }

// Directory is the deepest directory of Path that does not depend on the entry. It must exist on
// the host; we never make it.
func (r FileSpec) Directory() string {
	d := path.Dir(r.Path)
	for strings.Contains(d, "{") {
		d = path.Dir(d)
	}
	return d
}

// PathOf is where the entry lives. It fails if name is not fit for this field, which both halves check:
// the name is the only part of a path that comes from the cluster.
func (r FileSpec) PathOf(name string) (string, error) {
	switch {
	case r.byName():
		if err := checkRegistryName(name); err != nil {
			return "", err
		}
		return strings.Replace(r.Path, namePlaceholder, name, 1), nil
	case r.ByFingerprint():
		if _, err := parseDigest(name); err != nil {
			return "", fmt.Errorf("entry name %q: %v", name, err)
		}
		return strings.Replace(r.Path, fingerprintPlaceholder, name, 1), nil
	case name != "":
		return "", fmt.Errorf("field %s has one file, and no entry %q", r.Field, name)
	}
	return r.Path, nil
}

// Has reports whether path is one of the files.
func (r FileSpec) Has(path string) bool {
	for _, placeholder := range []string{namePlaceholder, fingerprintPlaceholder} {
		if before, after, many := strings.Cut(r.Path, placeholder); many {
			name, fits := strings.CutPrefix(path, before)
			name, ends := strings.CutSuffix(name, after)
			_, err := r.PathOf(name)
			return fits && ends && err == nil
		}
	}
	return path == r.Path
}

// checkRegistryName accepts host or host:port as containers-certs.d(5) directories name registries:
// a DNS name, an IPv4 address or a bracketed IPv6 address, and a decimal port. Nothing that passes
// can change a path's directory.
func checkRegistryName(name string) error {
	if name == "" || len(name) > 255 {
		return fmt.Errorf("registry name of %d bytes: want 1 to 255", len(name))
	}
	host, port := name, ""
	if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.HasSuffix(name, "]") {
		host, port = name[:i], name[i+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return fmt.Errorf("registry name %q: port is not a number from 1 to 65535", name)
		}
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		if a, err := netip.ParseAddr(host[1 : len(host)-1]); err != nil || !a.Is6() || a.Zone() != "" {
			return fmt.Errorf("registry name %q: not an IPv6 address in brackets", name)
		}
		return nil
	}
	if err := checkHost(host); err != nil {
		return fmt.Errorf("registry name %q: %v", name, err)
	}
	return nil
}

// checkHost follows RFC 1123 labels, upper case and underscores included because registries in the
// field use them.
func checkHost(host string) error {
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return errors.New("host is empty or has an empty or over-long label")
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return errors.New("a label of the host begins or ends with a hyphen")
		}
		for i := 0; i < len(label); i++ {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return fmt.Errorf("host holds the byte %#02x", c)
			}
		}
	}
	return nil
}
