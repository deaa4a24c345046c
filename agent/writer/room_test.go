// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/testpki"
)

func TestEntriesAndBytesOfARowAreBounded(t *testing.T) {
	const certsd = "etc/docker/certs.d"
	ctx := context.Background()
	now := testpki.Bundle("a")
	crowd := func(t *testing.T, dir string) {
		for i := range 4096 - 2 { // "gone" and "theirs" are there already
			if err := os.Mkdir(filepath.Join(dir, certsd, fmt.Sprint("r", i)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	load := func(t *testing.T, dir string) {
		p := filepath.Join(dir, certsd, "theirs/ca.crt")
		if err := errors.Join(os.WriteFile(p, nil, 0o644), os.Truncate(p, 256<<20-1)); err != nil {
			t.Fatal(err)
		}
	}
	for sentence, c := range map[string]struct {
		before func(*testing.T, string)
		row    plan.RowID
		name   string
		want   Kind
	}{
		"one more entry":                     {crowd, plan.ImageRegistryBundleData, "new", Refused},
		"one more of the row with that path": {crowd, plan.ImageRegistryBundleUserData, "new", Refused},
		"an entry that is there":             {crowd, plan.ImageRegistryBundleData, "gone", ""},
		"another row":                        {crowd, plan.KubeAPIServerServingCAData, "", ""},
		"more bytes":                         {load, plan.ImageRegistryBundleData, "new", Refused},
		"more bytes in a file that is there": {load, plan.ImageRegistryBundleData, "gone", Refused},
	} {
		t.Run(sentence, func(t *testing.T) {
			client, s, dir := recorded(t, nil)
			c.before(t, dir)
			err := client.Commit(ctx, writes(c.row, c.name, string(now)))
			if kind(err) != c.want || (c.want == "") != (err == nil) {
				t.Errorf("answered %v, want %q", err, c.want)
			}
			if c.want == Refused && (strings.Contains(s.log.String(), "writer writes") || !strings.Contains(s.log.String(), "writer refused a request")) {
				t.Errorf("recorded %q", s.log)
			}
		})
	}
}

func TestTheLargestHostHasRoom(t *testing.T) {
	client, _, _ := recorded(t, nil)
	var c plan.Commit
	now := string(testpki.Bundle("a"))
	for i := range 2000 {
		c.Writes = append(c.Writes, writes(plan.ImageRegistryBundleData, fmt.Sprint("r", i), now).Writes...)
	}
	for range 2 {
		if err := client.Commit(context.Background(), c); err != nil {
			t.Fatal(err)
		}
	}
}
