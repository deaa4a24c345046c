// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// BenchmarkHop compares both halves in one process with the way over the socket.
func BenchmarkHop(b *testing.B) {
	content := "valid" + strings.Repeat("a line of a certificate's base64\n", 9*1024/33)
	commit := writes(plan.KubeAPIServerServingCAData, "", content)
	all := commit
	var queries []plan.Query
	for i := range 25 {
		all.Writes = append(all.Writes, writes(plan.ImageRegistryBundleData, fmt.Sprintf("r%d", i), content).Writes...)
		queries = append(queries, plan.Query{Key: all.Writes[i].Key, Known: plan.DigestOf([]byte(content))})
	}
	type half interface {
		Observe(context.Context, []plan.Query) ([]plan.File, error)
		Commit(context.Context, plan.Commit) error
	}
	local, _ := newLocal(b)
	for side, w := range map[string]half{"local": local, "socket": Dial(serve(b, local).socket)} {
		for name, c := range map[string]plan.Commit{"commit1": commit, "commit25": all} {
			b.Run(name+"/"+side, func(b *testing.B) {
				for b.Loop() {
					if err := w.Commit(context.Background(), c); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run("observe25/"+side, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Observe(context.Background(), queries); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
