// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
)

// Field is the JSON name of a field of the ControllerConfig, and the key of the file that it feeds in the
// configuration, so that a person finds it in both places. The two kubeconfig fields are fed by the
// ConfigMap and named after what they change.
type Field string

// The fields that exist. A cluster cannot add one; a profile can only leave one out.
const (
	KubeAPIServerServingCAData  Field = "kubeAPIServerServingCAData" // the kubelet's client CA, despite its name
	CloudProviderCAData         Field = "cloudProviderCAData"
	RootCAData                  Field = "rootCAData"
	KubeconfigCAData            Field = "kubeconfigCAData"        // in the kubeconfig that the kubelet bootstraps with
	KubeletKubeconfigCAData     Field = "kubeletKubeconfigCAData" // in the one that it then lives on
	AdditionalTrustBundle       Field = "additionalTrustBundle"
	ImageRegistryBundleData     Field = "imageRegistryBundleData"
	ImageRegistryBundleUserData Field = "imageRegistryBundleUserData"
	InternalRegistryPullSecret  Field = "internalRegistryPullSecret"
)

// Fields lists every field in the order in which their files are renamed: trust before what needs it.
// Where two fields name the same file (the two registry lists may), the later field wins, as OpenShift's
// user data does.
func Fields() []Field {
	return []Field{KubeAPIServerServingCAData, CloudProviderCAData, RootCAData, KubeconfigCAData, KubeletKubeconfigCAData,
		AdditionalTrustBundle, ImageRegistryBundleData, ImageRegistryBundleUserData, InternalRegistryPullSecret}
}

// content is what managed files hold, and so how bytes for it are judged.
type content string

// holdsBundle is a set of CA certificates. holdsRegistry is one of a list of {file, data}, which may also
// be a registry's own certificate. holdsPullSecret is a docker config in JSON, and secret as a whole.
// holdsKubeconfig is a bundle that replaces one value inside a kubeconfig; the file around it is never
// seen outside the privileged half.
const (
	holdsBundle     content = "bundle"
	holdsRegistry   content = "registry bundle"
	holdsPullSecret content = "pull secret"
	holdsKubeconfig content = "kubeconfig CA"
)

func (id Field) content() content {
	switch id {
	case ImageRegistryBundleData, ImageRegistryBundleUserData:
		return holdsRegistry
	case InternalRegistryPullSecret:
		return holdsPullSecret
	case KubeconfigCAData, KubeletKubeconfigCAData:
		return holdsKubeconfig
	}
	return holdsBundle
}

// Secret tells the field whose file is secret as a whole.
func (id Field) Secret() bool { return id.content() == holdsPullSecret }

// List tells the fields that are lists of {file, data} from those that are one value.
func (id Field) List() bool { return id.content() == holdsRegistry }

// Edits reports whether the field changes one value inside a file that somebody else makes. Such a file
// keeps its mode and owner, and is not made if it is missing.
func (id Field) Edits() bool { return id.content() == holdsKubeconfig }

// FromConfigMap reports whether the field takes from the ConfigMap, the second source, and not from the
// controllerconfig.
func (id Field) FromConfigMap() bool { return id.content() == holdsKubeconfig }

// Placeholders of FileSpec.Path. A field has at most one, and with one it manages many files.
const (
	// NamePlaceholder stands for the registry's host[:port]; the element that holds it is a
	// directory of its own, as containers-certs.d(5) wants.
	NamePlaceholder = "{name}"
	// FingerprintPlaceholder stands for the hexadecimal SHA-256 of one certificate: the bundle is
	// laid out one certificate a file, as update-ca-certificates(8) wants.
	FingerprintPlaceholder = "{sha256}"
)

// FileSpec is one managed file, or with a placeholder a set of them: which field goes there, and how. It comes from
// root-owned configuration only.
type FileSpec struct {
	Field Field
	// Path is an absolute, clean path with at most one placeholder.
	Path string
	// Mode holds permission bits only. Fields that edit have none.
	Mode fs.FileMode
	// UID and GID own the file. Fields that edit name nobody.
	UID, GID int
	// FollowLink allows Path to be a symbolic link owned by root: the file it points to is then the
	// managed one. Without it a link is refused.
	FollowLink bool
	// OnChange names the allowlisted units that must load the files again when they change.
	OnChange []string
	// Verify are the consumers that are asked whether they use the file. A field with a placeholder has
	// none.
	Verify []liveness.Consumer
	// Strict refuses content that is questionable but loadable. Without it such content is written and reported.
	Strict bool
	// Beside are the other programs that write the files: see FileSpec.With.
	Beside []Writer
}

// Key names one managed file: a field and, in fields with a placeholder, the entry (else empty).
// Requests to the privileged half carry keys, never paths.
type Key struct {
	Field Field  `json:"field"`
	Name  string `json:"name,omitempty"`
}

// String is the form used in records and tables: "field" or "field/name".
func (k Key) String() string {
	if k.Name == "" {
		return string(k.Field)
	}
	return string(k.Field) + "/" + k.Name
}

// Compare orders keys by field and then by name.
func (k Key) Compare(other Key) int {
	if k.Field != other.Field {
		return strings.Compare(string(k.Field), string(other.Field))
	}
	return strings.Compare(k.Name, other.Name)
}

// Definition is a digest over what decides where the files are and what may be in them. The two
// halves read the configuration apart: by it they know that they mean the same field.
func (r FileSpec) Definition() Digest {
	return DigestOf(fmt.Appendf(nil, "%q %q %o %d %d %t %t %q", r.Field, r.Path, r.Mode, r.UID, r.GID, r.FollowLink,
		r.Strict, r.Beside))
}

// Many reports whether the field manages a file per entry.
func (r FileSpec) Many() bool { return r.byName() || r.byFingerprint() }

func (r FileSpec) byName() bool        { return strings.Contains(r.Path, NamePlaceholder) }
func (r FileSpec) byFingerprint() bool { return strings.Contains(r.Path, FingerprintPlaceholder) }

// OwnDirectory reports whether each entry lives in a directory of its own, which is made (0755) with
// the file and removed, when empty, after it.
func (r FileSpec) OwnDirectory() bool { return strings.Contains(path.Dir(r.Path), NamePlaceholder) }

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
		return strings.Replace(r.Path, NamePlaceholder, name, 1), nil
	case r.byFingerprint():
		if _, err := parseDigest(name); err != nil {
			return "", fmt.Errorf("entry name %q: %v", name, err)
		}
		return strings.Replace(r.Path, FingerprintPlaceholder, name, 1), nil
	case name != "":
		return "", fmt.Errorf("field %s has one file, and no entry %q", r.Field, name)
	}
	return r.Path, nil
}

// has reports whether path is one of the files.
func (r FileSpec) has(path string) bool {
	for _, placeholder := range []string{NamePlaceholder, FingerprintPlaceholder} {
		if before, after, many := strings.Cut(r.Path, placeholder); many {
			name, fits := strings.CutPrefix(path, before)
			name, ends := strings.CutSuffix(name, after)
			_, err := r.PathOf(name)
			return fits && ends && err == nil
		}
	}
	return path == r.Path
}

// RegistryName turns the `file` key of a registry entry into the directory name under certs.d:
// every ".." is a ":", because a ConfigMap key cannot hold one. Source: openshift
// machine-config-operator pkg/daemon/certificate_writer.go. The result still has to pass
// checkRegistryName.
func RegistryName(file string) string { return strings.ReplaceAll(file, "..", ":") }

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
