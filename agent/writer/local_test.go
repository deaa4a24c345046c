// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// The host of these tests: two fields below a root of their own, and files that nobody may touch.
var host = map[string]string{
	"etc/kubernetes/ca.crt":            "valid, old",
	"etc/kubernetes/link.crt":          "-> ca.crt",
	"etc/kubernetes/folder.crt/x":      "x",
	"etc/docker/certs.d/gone/ca.crt":   "valid, gone",
	"etc/docker/certs.d/theirs/ca.crt": "valid, theirs",
	"etc/shadow":                       "secret",
}

func specs() []plan.FileSpec {
	own := func(id plan.Field, file string) plan.FileSpec {
		return plan.FileSpec{Field: id, Path: file, Mode: 0o644, UID: -1, GID: -1}
	}
	return []plan.FileSpec{
		own(plan.KubeAPIServerServingCAData, "/etc/kubernetes/ca.crt"),
		own(plan.RootCAData, "/etc/kubernetes/link.crt"),
		own(plan.CloudProviderCAData, "/etc/kubernetes/folder.crt"),
		own(plan.ImageRegistryBundleData, "/etc/docker/certs.d/{name}/ca.crt"),
		own(plan.ImageRegistryBundleUserData, "/etc/docker/certs.d/{name}/ca.crt"),
	}
}

func valid(_ plan.FileSpec, data []byte) ([]pki.Cert, error) {
	if !strings.HasPrefix(string(data), "valid") {
		return nil, errors.New("not valid")
	}
	return nil, nil
}

// newLocal makes the host anew and a Local for it.
func newLocal(t testing.TB) (*Local, string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range host {
		p := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if dest, link := strings.CutPrefix(content, "-> "); link {
			err = errors.Join(err, os.Symlink(dest, p))
		} else {
			err = errors.Join(err, os.WriteFile(p, []byte(content), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tree, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return New(specs(), tree, valid), dir
}

// readTree reads the host back.
func readTree(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, p)
		switch {
		case err != nil || e.IsDir():
			return err
		case e.Type() == fs.ModeSymlink:
			dest, err := os.Readlink(p)
			got[name] = "-> " + dest
			return err
		}
		b, err := os.ReadFile(p)
		got[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func key(field plan.Field, name string) plan.Key { return plan.Key{Field: field, Name: name} }

func writes(field plan.Field, name, data string) plan.Commit {
	return plan.Commit{Writes: []plan.CommitWrite{{Key: key(field, name), Data: []byte(data)}}}
}

func kind(err error) errorKind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

func untouched(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.NothingChanged()
}

func TestCommitRefusesWhatItMayNot(t *testing.T) {
	twice := writes(plan.ImageRegistryBundleData, "h", "valid 1")
	twice.Writes = append(twice.Writes, writes(plan.ImageRegistryBundleUserData, "h", "valid 2").Writes...)
	both := writes(plan.ImageRegistryBundleData, "gone", "valid 1")
	both.Removals = []plan.CommitRemoval{{Key: key(plan.ImageRegistryBundleUserData, "gone"),
		Digest: plan.DigestOf([]byte("valid, gone"))}}
	second := writes(plan.KubeAPIServerServingCAData, "", "valid, new")
	second.Writes = append(second.Writes, writes(plan.ImageRegistryBundleData, "h", "bad").Writes...)
	for sentence, c := range map[string]struct {
		commit plan.Commit
		kind   errorKind
	}{
		"an unknown field":                  {writes("etcdServingCA", "", "valid"), refused},
		"a field that this host leaves out": {writes(plan.AdditionalTrustBundle, "", "valid"), refused},
		"a path in place of a field":        {writes("/etc/shadow", "", "valid"), refused},
		"a path in place of a name":         {writes(plan.ImageRegistryBundleData, "../../etc/shadow", "valid"), refused},
		"an absolute path as a name":        {writes(plan.ImageRegistryBundleData, "/etc/shadow", "valid"), refused},
		"dots as a name":                    {writes(plan.ImageRegistryBundleData, "..", "valid"), refused},
		"a name with a NUL":                 {writes(plan.ImageRegistryBundleData, "a\x00b", "valid"), refused},
		"no name":                           {writes(plan.ImageRegistryBundleData, "", "valid"), refused},
		"a name for a single file":          {writes(plan.KubeAPIServerServingCAData, "x", "valid"), refused},
		"invalid bytes":                     {writes(plan.KubeAPIServerServingCAData, "", "-----BEGIN"), refused},
		"an emptied file":                   {writes(plan.KubeAPIServerServingCAData, "", ""), refused},
		"too many bytes": {writes(plan.KubeAPIServerServingCAData, "",
			"valid"+strings.Repeat("x", disk.MaxSize)), refused},
		"one file from two fields":      {twice, refused},
		"a file written and removed":    {both, refused},
		"one bad write among good ones": {second, refused},
		"a link":                        {writes(plan.RootCAData, "", "valid"), failed},
		"a directory":                   {writes(plan.CloudProviderCAData, "", "valid"), failed},
		"the removal of others' bytes": {plan.Commit{Removals: []plan.CommitRemoval{
			{Key: key(plan.ImageRegistryBundleData, "theirs"), Digest: plan.DigestOf([]byte("valid, ours"))}}}, failed},
		"the removal of a field's only file": {plan.Commit{Removals: []plan.CommitRemoval{
			{Key: key(plan.KubeAPIServerServingCAData, ""), Digest: plan.DigestOf([]byte(host["etc/kubernetes/ca.crt"]))}}},
			refused},
		"a removal by path": {plan.Commit{Removals: []plan.CommitRemoval{
			{Key: key(plan.ImageRegistryBundleData, "../certs.d/theirs"), Digest: plan.DigestOf([]byte("valid, theirs"))}}},
			refused},
	} {
		t.Run(sentence, func(t *testing.T) {
			local, dir := newLocal(t)
			if err := local.Commit(context.Background(), c.commit); kind(err) != c.kind {
				t.Errorf("got %v, want an error that is %s", err, c.kind)
			}
			if got := readTree(t, dir); !maps.Equal(got, host) {
				t.Errorf("now there is %v", got)
			}
		})
	}
}

func TestEndedContextBeginsNothing(t *testing.T) {
	local, dir := newLocal(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := local.Commit(ctx, writes(plan.KubeAPIServerServingCAData, "", "valid, new")); !errors.Is(err,
		context.Canceled) {
		t.Errorf("commit: %v", err)
	}
	if _, err := local.Sweep(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("sweep: %v", err)
	}
	if _, err := local.Observe(ctx, []plan.Query{{Key: key(plan.KubeAPIServerServingCAData, "")}}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("observe: %v", err)
	}
	if got := readTree(t, dir); !maps.Equal(got, host) {
		t.Errorf("now there is %v", got)
	}
}

func FuzzCommit(f *testing.F) {
	f.Add("kubeAPIServerServingCAData", "", []byte("valid, new"), false)
	f.Add("imageRegistryBundleData", "quay.io:443", []byte("valid, new"), false)
	f.Add("imageRegistryBundleData", "../../../../etc", []byte("valid, new"), false)
	f.Add("imageRegistryBundleData", "[::1]:5000", []byte("valid, new"), false)
	f.Add("imageRegistryBundleData", "theirs", []byte("valid, theirs"), true)
	f.Add("imageRegistryBundleData", "theirs/../../../kubernetes", []byte("valid, old"), true)
	f.Add("imageRegistryBundleUserData", "a/b", []byte("valid"), true)
	f.Add("rootCAData", "", []byte("valid"), false)
	f.Fuzz(func(t *testing.T, field, name string, data []byte, remove bool) {
		local, dir := newLocal(t)
		c := writes(plan.Field(field), name, string(data))
		if remove {
			c = plan.Commit{Removals: []plan.CommitRemoval{{Key: key(plan.Field(field), name), Digest: plan.DigestOf(data)}}}
		}
		_ = local.Commit(context.Background(), c)
		confined(t, readTree(t, dir))
	})
}

// confined fails the test unless the host shows nothing but valid files at paths of its fields.
func confined(t *testing.T, got map[string]string) {
	t.Helper()
	for name, content := range got {
		if content == host[name] {
			continue
		}
		entry, own := strings.CutPrefix(name, "etc/docker/certs.d/")
		entry, ca := strings.CutSuffix(entry, "/ca.crt")
		_, err := plan.FileSpec{Path: "{name}"}.PathOf(entry)
		if name != "etc/kubernetes/ca.crt" && (!own || !ca || err != nil) {
			t.Errorf("wrote %q", name)
		}
		if _, err := valid(plan.FileSpec{}, []byte(content)); err != nil {
			t.Errorf("%q holds %q", name, content)
		}
	}
	for name := range host {
		if _, ok := got[name]; !ok && !strings.HasPrefix(name, "etc/docker/certs.d/") {
			t.Errorf("%q is gone", name)
		}
	}
}
