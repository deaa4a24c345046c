// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"io/fs"
	"slices"
	"strings"
)

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
