// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// Directory is one that managed files are in.
type Directory struct {
	// Path is as configured, and Real without links.
	Path, Real string
	// Problem is why it is none, such as that it does not exist.
	Problem string
	Mode    fs.FileMode
	UID     int
	// Label is the SELinux context, empty if it is unknown.
	Label string
}

// File is a managed file as the writer sees it, and its SELinux context.
type File struct {
	plan.Key
	Path string
	plan.File
	Label string
}

// writerFacts is what is known of the writer.
type writerFacts struct {
	// Asked is set if it was asked for the files, and Problem is why there was no answer.
	Asked   bool
	Problem string
	// Mounts is its mount table in the form of mountinfo in proc(5), empty if it was not seen.
	Mounts string
}

// filesIn names the fields whose files are in a directory.
func (f Facts) filesIn(dir string) (names []string) {
	for _, spec := range f.Policy.Files {
		if spec.Directory() == dir {
			names = append(names, string(spec.Field))
		}
	}
	return names
}

func directories(f Facts, r *report) {
	const what = "directory"
	for _, d := range f.Directories {
		fields := f.filesIn(d.Path)
		off := "`files: {" + strings.Join(fields, ": {enabled: false}, ") + ": {enabled: false}}`"
		switch {
		case d.Problem != "":
			r.add(Warn, what, "make it, or turn off what goes there: "+off, "%s: %s; for %s", d.Path, d.Problem,
				strings.Join(fields, ", "))
		case f.Plain:
			r.ok(what, "%s", d.Path)
		case f.readOnly(d.Real):
			r.add(Fail, what, "mount it writable, or turn off what goes there: "+off,
				"%s: its file system is mounted read-only; for %s", d.Path, strings.Join(fields, ", "))
		case d.UID != 0 || d.Mode.Perm()&0o300 != 0o300:
			r.add(Fail, what, "chown root "+d.Path+" && chmod u+rwx "+d.Path,
				"%s: uid %d, mode %04o: the writer is root without capabilities and cannot write there", d.Path, d.UID,
				d.Mode.Perm())
		default:
			mounted(f, d, r)
		}
	}
	for _, dir := range f.Missing {
		level, want := Warn, "for bootstrap files"
		if strings.HasPrefix(dir, "/run/") {
			level, want = Fail, "the service cannot start without it"
		}
		r.add(level, what, "systemd-tmpfiles --create node-cert-agent.conf", "%s: does not exist; %s", dir, want)
	}
}

// readOnly reports whether the host itself has a path on a read-only mount, whatever sandbox is around
// the writer.
func (f Facts) readOnly(path string) bool {
	readOnly, ok := mountOf(f.Mounts, path)
	return ok && readOnly
}

// mounted looks at a directory that could be written, were it not for the writer's sandbox.
func mounted(f Facts, d Directory, r *report) {
	const what = "directory"
	switch readOnly, ok := mountOf(f.Writer.Mounts, d.Real); {
	case f.Writer.Mounts == "":
		r.ok(what, "%s; what the writer's sandbox says was not seen", d.Path)
	case ok && readOnly:
		open := "ReadWritePaths=-" + d.Path
		if strings.HasPrefix(d.Real, "/run/") { // of which the unit shows nothing
			open = "BindPaths=-" + d.Real
		}
		r.add(Fail, what, "systemctl restart node-cert-agent-writer.service, in case it was replaced meanwhile; else "+
			"systemctl edit it: [Service] "+open, "%s is read-only for the writer", d.Path)
	default:
		r.ok(what, "%s is writable for the writer", d.Path)
	}
}

// mountOf finds the mount that a path is on, the deepest, and of several on one another the last, and
// tells whether it is read-only. A directory that was replaced is no longer on a mount of its own, but
// on that of the one above.
func mountOf(table, path string) (readOnly, ok bool) {
	depth := -1
	for line := range strings.Lines(table) {
		left, right, _ := strings.Cut(line, " - ")
		l, super := strings.Fields(left), strings.Fields(right)
		if len(l) < 6 || len(super) < 3 {
			continue
		}
		point := strings.TrimSuffix(unescape(l[4]), "/")
		if point != path && !strings.HasPrefix(path, point+"/") || len(point) < depth {
			continue
		}
		ro := func(options string) bool { return slices.Contains(strings.Split(options, ","), "ro") }
		depth, ok, readOnly = len(point), true, ro(l[5]) || ro(super[2])
	}
	return readOnly, ok
}

// unescape undoes the octal escapes of proc(5).
func unescape(s string) string {
	for _, c := range []string{" ", "\t", "\n", `\`} {
		s = strings.ReplaceAll(s, fmt.Sprintf(`\%03o`, c[0]), c)
	}
	return s
}

func files(f Facts, r *report) {
	good := 0
	for _, file := range f.Files {
		switch {
		case file.Kind == plan.Regular:
			good++
		case file.Reason == "", f.missing(file.Path):
		default:
			r.add(Warn, "file", file.anotherPath(), "%s is not written: %s", printable.Text(file.Path),
				printable.Text(file.Reason))
		}
	}
	if f.Writer.Asked && f.Writer.Problem == "" {
		r.ok("files", "%s in place", printable.Count(good, "managed file"))
	}
}

// anotherPath is the fix for a file with something in its way. On a control plane of kubeadm that is the key of the
// cluster's CA, which nobody can move.
func (file File) anotherPath() string {
	if file.Field == plan.KubeAPIServerServingCAData && file.Path == "/etc/kubernetes/pki/ca.crt" {
		return "on a control plane set `files: {kubeAPIServerServingCAData: {path: /etc/kubernetes/kubelet-ca.crt}}`, and " +
			"the same clientCAFile in /var/lib/kubelet/config.yaml"
	}
	return fmt.Sprintf("give it another path: `files: {%s: {path: PATH}}`, or move what is in the way", file.Field)
}

// missing reports whether a file has a finding already: that of its directory.
func (f Facts) missing(path string) bool {
	return slices.ContainsFunc(f.Directories, func(d Directory) bool {
		return d.Problem != "" && strings.HasPrefix(path, d.Path+"/")
	})
}

func writer(f Facts, r *report) {
	switch {
	case f.Plain, !f.Writer.Asked:
	case f.Writer.Problem != "":
		r.add(Fail, "writer", "systemctl enable --now node-cert-agent-writer.socket; systemctl status "+
			"node-cert-agent-writer.service", "%s", printable.Text(f.Writer.Problem))
	default:
		r.ok("writer", "answers")
	}
}

// labels compares with the directory, which is where files made in place get their label from, and
// with the files beside: a policy may name a file's own type.
func labels(f Facts, r *report) {
	if f.Plain || !f.Writer.Asked {
		return
	}
	if !f.SELinux {
		r.ok("SELinux", "off: files have no labels")
		return
	}
	good := 0
	for _, file := range f.Files {
		dir := f.directory(file)
		switch have, want := kind(file.Label), kind(dir.Label); {
		case file.Kind != plan.Regular:
		case have == "" || want == "":
			r.add(Warn, "SELinux", "ls -Z "+file.Path, "the label of %s or of its directory is unknown",
				printable.Text(file.Path))
		case have != want:
			r.add(Warn, "SELinux", "restorecon -nv "+file.Path+" says whether that is right", "%s is %s, and its directory %s",
				printable.Text(file.Path), have, want)
		default:
			good++
		}
	}
	r.ok("SELinux", "%s labelled as the directory", printable.Count(good, "managed file"))
}

func (f Facts) directory(file File) Directory {
	spec, _ := f.Policy.File(file.Field)
	for _, d := range f.Directories {
		if d.Path == spec.Directory() {
			return d
		}
	}
	return Directory{}
}

// kind is the type in an SELinux context, which is user:role:type:level.
func kind(label string) string {
	if parts := strings.SplitN(label, ":", 4); len(parts) >= 3 {
		return parts[2]
	}
	return ""
}
