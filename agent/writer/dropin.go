// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// writableAsShipped are the directories that node-cert-agent-writer.service has writable as it is shipped.
var writableAsShipped = []string{
	"/etc/kubernetes", "/etc/docker/certs.d", "/etc/pki/ca-trust/source/anchors", "/usr/local/share/ca-certificates",
	bootstrapDir,
}

// Dropin is a drop-in for the writer's service, in the words of systemd.exec(5): it opens the directories of fields
// that the service as shipped has not writable. A file that may be a link needs the directory that the link leads to as
// well; resolve says where a file is when its links are followed.
func Dropin(specs []plan.FileSpec, resolve func(file string) string) string {
	var more []string
	for _, r := range specs {
		more = append(more, r.Directory())
		if r.FollowLink {
			more = append(more, path.Dir(resolve(r.Path)))
		}
	}
	slices.Sort(more)
	more = slices.DeleteFunc(slices.Compact(more), func(dir string) bool {
		contains := func(shipped string) bool { return dir == shipped || strings.HasPrefix(dir, shipped+"/") }
		return slices.ContainsFunc(writableAsShipped, contains)
	})
	var b strings.Builder
	b.WriteString("# Made by \"node-cert-agent writer-dropin\" from the files of this host's configuration.\n[Service]\n")
	for _, dir := range more {
		// One that is missing must not keep the writer from starting; nothing in it can be run.
		quoted := strings.ReplaceAll(strconv.Quote("-"+dir), "%", "%%")
		open := "ReadWritePaths"
		if strings.HasPrefix(dir, "/run/") || strings.HasPrefix(dir, "/var/run/") {
			open = "BindPaths" // of /run the unit shows nothing
		}
		fmt.Fprintf(&b, "%s=%s\nNoExecPaths=%s\n", open, quoted, quoted)
	}
	return b.String()
}
