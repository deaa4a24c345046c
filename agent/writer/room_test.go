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
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

func TestEntriesAndBytesOfAFieldAreBounded(t *testing.T) {
	const certsd = "etc/docker/certs.d"
	now := testpki.Bundle("a")
	crowded, s, dir := recorded(t, nil)
	for i := range maxEntries - 2 { // "gone" and "theirs" are there already
		if err := os.Mkdir(filepath.Join(dir, certsd, fmt.Sprint("r", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	heavy, s2, dir := recorded(t, nil)
	p := filepath.Join(dir, certsd, "theirs/ca.crt")
	if err := errors.Join(os.WriteFile(p, nil, 0o644), os.Truncate(p, maxBytes-1)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sentence string
		client   *Client
		log      *lines
		field    plan.Field
		name     string
		want     errorKind
	}{
		{"one more entry", crowded, s.log, plan.ImageRegistryBundleData, "new", refused},
		{"one more of the field with that path", crowded, s.log, plan.ImageRegistryBundleUserData, "new", refused},
		{"an entry that is there", crowded, s.log, plan.ImageRegistryBundleData, "gone", ""},
		{"another field", crowded, s.log, plan.KubeAPIServerServingCAData, "", ""},
		{"more bytes", heavy, s2.log, plan.ImageRegistryBundleData, "new", refused},
		{"more bytes in a file that is there", heavy, s2.log, plan.ImageRegistryBundleData, "gone", refused},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			before := c.log.String()
			err := c.client.Commit(context.Background(), writes(c.field, c.name, string(now)))
			if kind(err) != c.want || (c.want == "") != (err == nil) {
				t.Errorf("answered %v, want %q", err, c.want)
			}
			said := strings.TrimPrefix(c.log.String(), before)
			if c.want == refused && !strings.HasPrefix(said, "<4>writer refused a request") {
				t.Errorf("recorded %q", said)
			}
		})
	}
}
