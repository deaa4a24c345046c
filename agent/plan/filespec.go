// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
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

// Secret tells the field whose file is secret as a whole: a docker config in JSON. Others hold certificates.
func (id Field) Secret() bool { return id == InternalRegistryPullSecret }

// List tells the fields that are lists of {file, data} from those that are one value. Each is a registry's CAs, or
// its own certificate.
func (id Field) List() bool {
	return id == ImageRegistryBundleData || id == ImageRegistryBundleUserData
}

// Edits reports whether the field is a bundle that replaces one value inside a kubeconfig that somebody else makes.
// Such a file keeps its mode and owner, is not made if it is missing, and is never seen outside the writer.
func (id Field) Edits() bool { return id == KubeconfigCAData || id == KubeletKubeconfigCAData }

// FromConfigMap reports whether the field takes from the ConfigMap, the second source, and not from the
// controllerconfig.
func (id Field) FromConfigMap() bool { return id.Edits() }

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
// Requests to the writer carry keys, never paths.
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
	return cmp.Or(cmp.Compare(k.Field, other.Field), cmp.Compare(k.Name, other.Name))
}

// Definition is a digest over what decides where the files are and what may be in them. The two
// halves read the configuration apart: by it they know that they mean the same field.
func (r FileSpec) Definition() Digest {
	return DigestOf(fmt.Appendf(nil, "%q %q %o %d %d %t %t %q", r.Field, r.Path, r.Mode, r.UID, r.GID, r.FollowLink,
		r.Strict, r.Beside))
}

// Writer is another program that writes managed files and means to. Its habits are known, so that
// what it does is not taken for damage and it never meets what would trouble it.
type Writer string

// The writers of OpenShift. The machine config daemon writes every managed file whenever the ControllerConfig
// has a new version; it takes registries' directories away and makes them again, and keeps the mode
// of a file that is there. The node-ca daemon writes the registries' files from a ConfigMap of its
// own, as user 1001 of group 0, and each minute removes the directories that it does not know.
// Sources: machine-config-operator pkg/daemon/certificate_writer.go, cluster-image-registry-operator
// pkg/nodeca/nodeca.go and bindata/nodecadaemon.yaml.
const (
	MachineConfigDaemon Writer = "machine-config-daemon"
	NodeCA              Writer = "node-ca"
)

// nodeCAUser is the owner of what the node-ca daemon makes; its group is root's.
const nodeCAUser = 1001

// With is r beside these writers, as far as they write the files.
func (r FileSpec) With(writers []Writer) FileSpec {
	r.Beside = slices.DeleteFunc(slices.Clone(writers), func(w Writer) bool { return w == NodeCA && !r.Field.List() })
	return r
}

// KeepsMode reports whether a file that is there keeps its mode if that grants less than the configured:
// the machine config daemon does so, and compares modes with its own list.
func (r FileSpec) KeepsMode() bool { return slices.Contains(r.Beside, MachineConfigDaemon) }

// AsPublished reports whether the files hold the bytes that were published and not their canonical form:
// other writers would put them back.
func (r FileSpec) AsPublished() bool { return len(r.Beside) > 0 }

// verbatim reports whether the files hold what is published to the last byte. Without other writers,
// and in single files also beside them, a final newline is added where it is missing.
func (r FileSpec) verbatim() bool { return r.Field.List() && r.AsPublished() }

// accepts reports whether mode and owner of a file are the configured, or what a known writer gives it. A
// field that edits has none of its own.
func (r FileSpec) accepts(f File) bool {
	if r.Field.Edits() {
		return true
	}
	mode := f.Mode.Perm() == r.Mode || r.KeepsMode() && Narrower(f.Mode, r.Mode)
	owner := f.UID == r.UID && f.GID == r.GID
	if slices.Contains(r.Beside, NodeCA) {
		owner = owner || f.UID == nodeCAUser && f.GID == 0
	}
	return mode && owner
}

// Narrower reports whether have grants nothing that want does not, and lets the owner read.
func Narrower(have, want fs.FileMode) bool {
	return have.Perm()&^want == 0 && have&0o400 != 0
}

// others names the field's other writers in a sentence.
func (r FileSpec) others() string {
	names := make([]string, len(r.Beside))
	for i, w := range r.Beside {
		names[i] = string(w)
	}
	return strings.Join(names, " and ")
}
