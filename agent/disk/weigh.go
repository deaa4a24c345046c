// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"path"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Weigh tells how many entries a field with a placeholder has, whoever made them, and how many bytes
// their files have together. What cannot be looked at counts nothing.
func (t *Tree) Weigh(spec plan.FileSpec) (entries int, size int64) {
	ses := t.newSession()
	defer ses.close()
	top, err := ses.open(spec.Directory())
	if err != nil {
		return 0, 0
	}
	pattern, file, _ := strings.Cut(strings.TrimPrefix(spec.Path, spec.Directory()+"/"), "/")
	for _, name := range top.names() {
		between, ok := cut(pattern, name)
		if !ok || !fits(spec, between) {
			continue
		}
		entries++
		if info, err := top.root.Lstat(path.Join(name, file)); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
	}
	return entries, size
}
