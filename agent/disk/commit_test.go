// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// step is a change, or with was set a removal, of a file below the test's directory.
type step struct{ file, name, data, was string }

func (s step) target(t *testing.T, dir string) Target {
	return target(t, filepath.Join(dir, s.file), s.name)
}

func commit(t *testing.T, dir string, steps ...step) error {
	t.Helper()
	var changes []Change
	var removals []Removal
	for _, s := range steps {
		if s.was != "" {
			removals = append(removals, Removal{s.target(t, dir), plan.DigestOf([]byte(s.was))})
			continue
		}
		changes = append(changes, Change{s.target(t, dir), []byte(s.data)})
	}
	return open(t, "/").Commit(changes, removals)
}

const registries = "certs.d/{name}/ca.crt"

func TestCommitDoesAllOrSaysWhatNot(t *testing.T) {
	for sentence, c := range map[string]struct {
		before, after files
		steps         []step
		reason        string
	}{
		"a file is made": {files{}, files{"a": "new"}, []step{{"a", "", "new", ""}}, ""},
		"a file is replaced": {files{"a": "old", "b": "b"}, files{"a": "new", "b": "b"},
			[]step{{"a", "", "new", ""}}, ""},
		"an own directory is made": {files{"certs.d/": ""}, files{"certs.d/h:5000/ca.crt": "new"},
			[]step{{registries, "h:5000", "new", ""}}, ""},
		"a directory of the host is not made": {files{}, files{},
			[]step{{"none/a", "", "new", ""}}, "does not exist"},
		"a removal takes the own directory along": {files{"certs.d/h/ca.crt": "r"}, files{"certs.d/": ""},
			[]step{{registries, "h", "", "r"}}, ""},
		"an own directory that holds more stays": {files{"certs.d/h/ca.crt": "r", "certs.d/h/client.key": "k"},
			files{"certs.d/h/client.key": "k"}, []step{{registries, "h", "", "r"}}, ""},
		"a directory that is not its own stays": {files{"d/a": "r"}, files{"d/": ""}, []step{{"d/a", "", "", "r"}}, ""},
		"what others wrote is not removed": {files{"certs.d/h/ca.crt": "theirs"}, files{"certs.d/h/ca.crt": "theirs"},
			[]step{{registries, "h", "", "r"}}, "not those that we wrote"},
		"a removal that was done is done": {files{"certs.d/": ""}, files{"certs.d/": ""},
			[]step{{registries, "h", "", "r"}}, ""},
		"a removal that was half done is finished": {files{"certs.d/h/": ""}, files{"certs.d/": ""},
			[]step{{registries, "h", "", "r"}}, ""},
		"removals come last, and an error names both sides": {files{"a": "old", "b": "theirs", "c": "r"},
			files{"a": "new", "b": "theirs", "c": "r"},
			[]step{{"b", "", "", "r"}, {"c", "", "", "r"}, {"a", "", "new", ""}}, "(done: DIR/a; not done: DIR/b, DIR/c)"},
		"one bad target stops all": {files{"a": "old", "certs.d/": "", "d/x": "x"},
			files{"a": "old", "certs.d/": "", "d/x": "x"},
			[]step{{"a", "", "new", ""}, {registries, "h", "new", ""}, {"d", "", "new", ""}}, "stage DIR/d: a directory"},
		"a link is not replaced": {files{"a": "old", "l": "-> a"}, files{"a": "old", "l": "-> a"},
			[]step{{"l", "", "new", ""}}, "a symbolic link"},
		"a pipe is not replaced": {files{"p": "|"}, files{"p": "|"}, []step{{"p", "", "new", ""}}, "a named pipe"},
		"a link in place of an own directory is not entered": {files{"certs.d/h": "-> ../etc", "etc/": ""},
			files{"certs.d/h": "-> ../etc", "etc/": ""}, []step{{registries, "h", "new", ""}}, "a symbolic link"},
		"a bundle is not written beside its key": {files{"pki/ca.crt": "old", "pki/ca.key": "k"},
			files{"pki/ca.crt": "old", "pki/ca.key": "k"},
			[]step{{"pki/ca.crt", "", "new", ""}}, "beside a private key, ca.key"},
		"nor made there": {files{"pki/ca-key.pem": "k"}, files{"pki/ca-key.pem": "k"},
			[]step{{"pki/ca.pem", "", "new", ""}}, "beside a private key, ca-key.pem"},
		"another's key does not matter": {files{"pki/sa.key": "k"}, files{"pki/sa.key": "k", "pki/ca.crt": "new"},
			[]step{{"pki/ca.crt", "", "new", ""}}, ""},
		"what is too large is not written": {files{"a": "old"}, files{"a": "old"},
			[]step{{"a", "", strings.Repeat("x", MaxSize+1), ""}}, "2097153 bytes"},
		"a field in two elements is replaced together": {files{"a": "1", "b": "1", "certs.d/h/ca.crt": "1"},
			files{"a": "2", "b": "2", "certs.d/h/ca.crt": "2", "certs.d/i/ca.crt": "2"},
			[]step{{"a", "", "2", ""}, {"b", "", "2", ""}, {registries, "h", "2", ""}, {registries, "i", "2", ""}}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			dir := c.before.make(t)
			err := commit(t, dir, c.steps...)
			if (err == nil) != (c.reason == "") ||
				err != nil && !strings.Contains(strings.ReplaceAll(err.Error(), dir, "DIR"), c.reason) {
				t.Errorf("error %v, want %q", err, c.reason)
			}
			if got := tell(t, dir); !maps.Equal(got, c.after) {
				t.Errorf("now there is %v, want %v", got, c.after)
			}
			removes := slices.ContainsFunc(c.steps, func(s step) bool { return s.was != "" })
			if got, want := errors.Is(err, ErrUntouched), err != nil && !removes; got != want {
				t.Errorf("nothing was changed: %v, want %v (%v)", got, want, err)
			}
		})
	}
}

func TestCommitObeysNoUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := files{"certs.d/": "", "a": "old"}.make(t)
	if err := os.Chmod(filepath.Join(dir, "a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := commit(t, dir, step{"a", "", "new", ""}, step{registries, "h", "new", ""}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"a": 0o644, "certs.d/h": 0o755 | os.ModeDir,
		"certs.d/h/ca.crt": 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

// broken stages a commit, lets break happen, and carries on.
func broken(t *testing.T, dir string, harm func(), steps ...step) error {
	t.Helper()
	ses := open(t, "/").newSession()
	defer ses.close()
	var changes []Change
	for _, s := range steps {
		changes = append(changes, Change{s.target(t, dir), []byte(s.data)})
	}
	all, err := ses.stage(changes)
	if err != nil {
		t.Fatal(err)
	}
	harm()
	err = ses.carryOut(all, nil)
	ses.unmake()
	return errors.Join(err, ses.sync())
}

func TestFailedRenameStopsTheCommit(t *testing.T) {
	dir := files{"a": "1", "c": "1", "certs.d/": ""}.make(t)
	err := broken(t, dir, func() {
		if err := os.Mkdir(filepath.Join(dir, "b"), 0o755); err != nil {
			t.Fatal(err)
		}
	}, step{"a", "", "2", ""}, step{"b", "", "2", ""}, step{"c", "", "2", ""}, step{registries, "h", "2", ""})
	want := "(done: DIR/a; not done: DIR/b, DIR/c, DIR/certs.d/h/ca.crt)"
	if err == nil || errors.Is(err, ErrUntouched) || !strings.Contains(strings.ReplaceAll(err.Error(), dir, "DIR"), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	after := files{"a": "2", "b/": "", "c": "1", "certs.d/": ""}
	if got := tell(t, dir); !maps.Equal(got, after) {
		t.Errorf("now there is %v, want %v", got, after)
	}
}

func TestARemovalOfWhatIsGoneIsMadeDurable(t *testing.T) {
	for sentence, left := range map[string]files{
		"the file is gone":          {"certs.d/h/client.key": "k"},
		"its directory is gone too": {"certs.d/": ""},
	} {
		dir := left.make(t)
		ses := open(t, "/").newSession()
		s := step{registries, "h", "", "r"}
		if err := ses.carryOut(nil, []Removal{{s.target(t, dir), plan.DigestOf([]byte(s.was))}}); err != nil {
			t.Fatal(err)
		}
		synced := slices.ContainsFunc(slices.Collect(maps.Values(ses.dirs)), func(d *directory) bool { return d.dirty })
		if err := ses.sync(); err != nil || !synced {
			t.Errorf("%s: a directory is synced: %v, %v", sentence, synced, err)
		}
		ses.close()
	}
}

func TestReplacedDirectoryIsNoticed(t *testing.T) {
	for _, c := range []step{{"d/a", "", "2", ""}, {"d/{name}/ca.crt", "h", "2", ""}} {
		dir := files{"d/a": "1", "d/h/ca.crt": "1"}.make(t)
		err := broken(t, dir, func() {
			moved := filepath.Dir(c.target(t, dir).Path)
			if err := errors.Join(os.Rename(moved, moved+".old"), os.Mkdir(moved, 0o755)); err != nil {
				t.Fatal(err)
			}
		}, c)
		if !errors.Is(err, ErrReplaced) {
			t.Errorf("%s: error %v, want ErrReplaced", c.file, err)
		}
	}
}

func TestLinkIsFollowedOnlyIfNobodyElseMadeIt(t *testing.T) {
	dir := files{
		"real/ca.crt": "old", "good": "-> real/ca.crt", "absolute": "-> $DIR/real/ca.crt", "dangling": "-> real/new.crt",
		"twice": "-> good", "folder": "-> real/.", "open/link": "-> ../real/ca.crt", "hop": "-> real",
		"hop.crt": "-> hop/../real/ca.crt",
	}.make(t)
	if err := os.Chmod(filepath.Join(dir, "open"), 0o777); err != nil {
		t.Fatal(err)
	}
	for sentence, c := range map[string]struct{ link, lands, reason string }{
		"a relative link":                      {"good", "real/ca.crt", ""},
		"an absolute link":                     {"absolute", "real/ca.crt", ""},
		"a link to a file that is to be":       {"dangling", "real/new.crt", ""},
		"a link through a linked directory":    {"hop.crt", "real/ca.crt", ""},
		"a link to a link is refused":          {"twice", "", "a symbolic link"},
		"a link to a directory is refused":     {"folder", "", "to a directory"},
		"a link that others made is refused":   {"open/link", "", "others than root"},
		"a file that is no link is as without": {"real/ca.crt", "real/ca.crt", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			at := target(t, filepath.Join(dir, c.link), "")
			at.FollowLink = true
			before := tell(t, dir)
			if f := observe(t, open(t, "/"), Query{Target: at})[0]; c.lands != "" {
				want := ""
				if c.lands != c.link {
					want = filepath.Join(dir, filepath.Dir(c.lands))
				}
				if resolved, err := filepath.EvalSymlinks(f.Directory); f.Directory != "" && (err != nil || resolved != want) ||
					want != "" && f.Directory == "" {
					t.Errorf("the file is said to be in %q, %v; want %q", f.Directory, err, want)
				}
			}
			err := open(t, "/").Commit([]Change{{at, []byte(sentence)}}, nil)
			if (err == nil) != (c.reason == "") || err != nil && !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("error %v, want %q", err, c.reason)
			}
			if c.lands != "" {
				before[c.lands] = sentence
			}
			if got := tell(t, dir); !maps.Equal(got, before) {
				t.Errorf("now there is %v, want %v", got, before)
			}
		})
	}
}

func TestAStricterModeIsKeptWhereTheFieldSaysSo(t *testing.T) {
	for sentence, c := range map[string]struct {
		before os.FileMode
		keep   bool
		want   os.FileMode
	}{
		"the mode is set": {0o600, false, 0o644},
		"beside a writer that keeps modes it stays":  {0o600, true, 0o600},
		"a mode that grants more does not":           {0o666, true, 0o644},
		"nor one that grants other things":           {0o710, true, 0o644},
		"nor one with which the owner is locked out": {0o040, true, 0o644},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := filepath.Join(files{"a": "old"}.make(t), "a")
			if err := os.Chmod(p, c.before); err != nil {
				t.Fatal(err)
			}
			at := target(t, p, "")
			at.KeepMode = c.keep
			if err := open(t, "/").Commit([]Change{{at, []byte("new")}}, nil); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(p); err != nil || info.Mode() != c.want {
				t.Errorf("the mode is %v (%v), want %v", info.Mode(), err, c.want)
			}
		})
	}
}
