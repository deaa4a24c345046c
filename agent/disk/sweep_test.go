// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func TestSweepTakesOurLeftoversAndNothingElse(t *testing.T) {
	fingerprint := strings.Repeat("0123456789abcdef", 4)
	ours := files{
		"etc/.ca.crt1":                                     "",
		"etc/.ca.crt9223372036854775807":                   "torn",
		"certs.d/h:5000/.ca.crt77":                         "",
		"flat/.nca-" + fingerprint + ".crt12":              "",
		"named/.host15":                                    "",
		"real/.linked.crt5":                                "",
		"certs.d/" + strings.Repeat("a", 60) + "/.ca.crt7": "",
	}
	theirs := files{
		"real/linked.crt": "", "certs.d/" + strings.Repeat("a", 60) + "/key": "",
		"etc/ca.crt": "kept", "etc/.ca.crt": "", "etc/.ca.crt12a": "", "etc/ca.crt123": "", "etc/..ca.crt12": "",
		"etc/.ca.crt12345678901234567890": "", "etc/.other.crt12": "", "etc/.ca.crt-12": "", "etc/.ca.crt12/": "",
		"etc/.ca.crt13": "-> ca.crt", "etc/.ca.crt14": "|", "etc/sub/.ca.crt12": "", "etc/.12": "", "etc/.ca.crt 1": "",
		"certs.d/.ca.crt12": "", "certs.d/not a name/.ca.crt12": "", "certs.d/h:5000/ca.crt": "",
		"certs.d/h:5000/.client.key12": "",
		"certs.d/link":                 "-> ../etc/sub", "flat/.nca-0123.crt12": "", "flat/nca-" + fingerprint + ".crt": "",
		"named/.-1": "", "named/.5": "", "elsewhere/.ca.crt12": "", "linked.crt": "-> real/linked.crt", ".linked.crt5": "",
	}
	all := maps.Clone(ours)
	maps.Copy(all, theirs)
	dir := all.make(t)
	want := []string{}
	for name := range ours {
		want = append(want, filepath.Join(dir, name))
	}
	specs := []plan.FileSpec{spec(filepath.Join(dir, "etc/ca.crt")), spec(filepath.Join(dir, "certs.d/{name}/ca.crt")),
		spec(filepath.Join(dir, "flat/nca-{sha256}.crt")), spec(filepath.Join(dir, "named/{name}")),
		spec(filepath.Join(dir, "missing/ca.crt")), spec(filepath.Join(dir, "missing/{name}/ca.crt")),
		{Path: filepath.Join(dir, "linked.crt"), FollowLink: true}}
	removed, err := open(t, "/").Sweep(specs)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(removed)
	if !slices.Equal(removed, want) {
		t.Errorf("removed %q, want %q", removed, want)
	}
	if got := tell(t, dir); !maps.Equal(got, theirs) {
		t.Errorf("now there is %v, want %v", got, theirs)
	}
}

func TestSweepLeavesWhatIsInUse(t *testing.T) {
	dir := files{"ca.crt": "old", ".ca.crt12": "being written"}.make(t)
	f, err := os.Open(filepath.Join(dir, ".ca.crt12"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	specs := []plan.FileSpec{spec(filepath.Join(dir, "ca.crt"))}
	if removed, err := open(t, "/").Sweep(specs); err != nil || len(removed) != 0 {
		t.Errorf("removed %q, %v, while it was locked", removed, err)
	}
	f.Close()
	if removed, err := open(t, "/").Sweep(specs); err != nil || len(removed) != 1 {
		t.Errorf("removed %q, %v, after its writer was gone; want one", removed, err)
	}
}

func TestStagedFilesAreLocked(t *testing.T) {
	dir := files{"a": "1"}.make(t)
	err := broken(t, dir, func() {
		removed, err := open(t, "/").Sweep([]plan.FileSpec{spec(filepath.Join(dir, "a"))})
		if err != nil || len(removed) != 0 {
			t.Errorf("another process swept %q, %v", removed, err)
		}
	}, step{"a", "", "2", ""})
	if err != nil {
		t.Error(err)
	}
}

func TestAFreshFileBesideAnotherWriterIsNotTakenForALeftover(t *testing.T) {
	dir := files{"certs.d/h/ca.crt": "c", "certs.d/h/.ca.crt1": "theirs", "certs.d/h/.ca.crt2": "ours"}.make(t)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "certs.d/h/.ca.crt2"), old, old); err != nil {
		t.Fatal(err)
	}
	r := spec(filepath.Join(dir, registries))
	r.Field = plan.ImageRegistryBundleData
	beside := r.With([]plan.Writer{plan.MachineConfigDaemon})
	for _, c := range []struct {
		spec plan.FileSpec
		want string
	}{{beside, ".ca.crt2"}, {r, ".ca.crt1"}} {
		removed, err := open(t, "/").Sweep([]plan.FileSpec{c.spec})
		if err != nil || len(removed) != 1 || filepath.Base(removed[0]) != c.want {
			t.Errorf("beside %v: swept %q, %v; want %s", c.spec.Beside, removed, err, c.want)
		}
	}
}
