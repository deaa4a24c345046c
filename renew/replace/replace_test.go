// SPDX-License-Identifier: Apache-2.0

package replace

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// host is a file system with one pair of files, one kubeconfig and a state directory.
type host struct {
	*testing.T
	dir string
}

var (
	server = Pair{ID: "etcd/server", Key: "/etc/pki/server.key", Certificate: "/etc/pki/server.crt"}
	admin  = Pair{ID: "admin", Kubeconfig: "/etc/admin.conf"}
)

func newHost(t *testing.T) host {
	t.Helper()
	h := host{t, t.TempDir()}
	for _, dir := range []string{"etc/pki", "state"} {
		if err := os.MkdirAll(filepath.Join(h.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.put("etc/pki/server.key", "old key", 0o600)
	h.put("etc/pki/server.crt", "old leaf", 0o644)
	h.put("etc/admin.conf", config("old"), 0o600)
	return h
}

// put overwrites in place, as kubeadm does.
func (h host) put(name, content string, mode fs.FileMode) {
	h.Helper()
	p := filepath.Join(h.dir, name)
	if err := errors.Join(os.WriteFile(p, []byte(content), mode), os.Chmod(p, mode)); err != nil {
		h.Fatal(err)
	}
}

func (h host) get(name string) string {
	b, _ := os.ReadFile(filepath.Join(h.dir, name)) // a missing file is ""
	return string(b)
}

// config is a kubeconfig with a pair, and things that must not change.
func config(which string) string {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(which + " " + s)) }
	return "# by kubeadm\nclusters: [{name: c, cluster: {server: https://a.test}}]\ncontexts:\n- {name: x, context: " +
		"{cluster: c, user: me}}\ncurrent-context: x\nusers:\n- name: me\n  user:\n    client-certificate-data: " +
		b64("leaf") + " # keep\n    client-key-data: " + b64("key") + "\n"
}

func (h host) tree() *disk.Tree {
	h.Helper()
	tree, err := disk.Open(h.dir)
	if err != nil {
		h.Fatal(err)
	}
	return tree
}

// start is what a new process does first.
func (h host) start() (*Replacer, Status) {
	h.Helper()
	tree := h.tree()
	state, err := tree.Directory("/state")
	if err != nil {
		h.Fatal(err)
	}
	r, err := Open(tree, state)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(r.Close)
	s, err := r.Recover(server, admin)
	if err != nil {
		h.Fatal(err)
	}
	return r, s
}

func content(which string) Content {
	return Content{Certificate: []byte(which + " leaf"), Key: secret.New([]byte(which + " key"))}
}

func leaf(which string) plan.Digest { return content(which).Digests().Certificate }

// holds asserts what both files hold, and that nothing staged is left if no pair waits.
func (h host) holds(key, leaf string) {
	h.Helper()
	if k, l := h.get("etc/pki/server.key"), h.get("etc/pki/server.crt"); k != key+" key" || l != leaf+" leaf" {
		h.Errorf("the pair is %q and %q, want %s and %s", k, l, key, leaf)
	}
	if strings.Contains(h.get("state/replace.json"), `"waiting"`) {
		return // what was displaced stays until then
	}
	names, _ := filepath.Glob(filepath.Join(h.dir, "etc/pki/.*"))
	more, _ := filepath.Glob(filepath.Join(h.dir, "etc/.*"))
	if left := append(names, more...); len(left) > 0 {
		h.Errorf("left are %q", left)
	}
}

func (h host) replaced(r *Replacer, which string) {
	h.Helper()
	now, err := r.Read(server)
	if err == nil {
		err = r.Replace(server, now.Digests(), content(which))
	}
	if err != nil {
		h.Fatal(err)
	}
	h.holds(which, which)
}

func TestAPairIsReplacedAndKept(t *testing.T) {
	h := newHost(t)
	r, _ := h.start()
	h.replaced(r, "new")
	if s := r.Waiting(); s.Pair != server || s.Leaf != leaf("new") || s.Blocked != "" {
		t.Errorf("waiting is %+v", s)
	}
	if err := r.Keep("etc/other", leaf("new")); !errors.Is(err, ErrNotWritten) {
		t.Error(err)
	}
	if err := r.Keep(server.ID, leaf("old")); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	if err := r.Keep(server.ID, leaf("new")); err != nil {
		t.Fatal(err)
	}
	h.holds("new", "new")
	if err := r.Restore(server.ID, leaf("new")); !errors.Is(err, ErrNotWritten) {
		t.Errorf("what is kept was restored: %v", err)
	}
	h.replaced(r, "third")
}

func TestAPairIsRestoredWithItsOldBytes(t *testing.T) {
	h := newHost(t)
	r, _ := h.start()
	h.replaced(r, "new")
	if err := r.Restore(server.ID, leaf("old")); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	if err := r.Restore(server.ID, leaf("new")); err != nil {
		t.Fatal(err)
	}
	h.holds("old", "old")
	if s := r.Waiting(); s != (Status{}) {
		t.Errorf("waiting is %+v", s)
	}
}

func TestOfAKubeconfigOnlyTheUsersPairChanges(t *testing.T) {
	h := newHost(t)
	r, _ := h.start()
	if now, err := r.Read(admin); err != nil || now.Digests() != content("old").Digests() {
		t.Fatalf("read %v, %v", now, err)
	}
	if err := r.Replace(admin, content("old").Digests(), content("new")); err != nil {
		t.Fatal(err)
	}
	if got := h.get("etc/admin.conf"); got != config("new") {
		t.Errorf("now there is\n%s", got)
	}
	// Meanwhile somebody changes another part: it is neither a reason to refuse nor undone.
	h.put("etc/admin.conf", strings.ReplaceAll(config("new"), "a.test", "b.test"), 0o600)
	if err := r.Restore(admin.ID, leaf("new")); err != nil {
		t.Fatal(err)
	}
	if got := h.get("etc/admin.conf"); got != strings.ReplaceAll(config("old"), "a.test", "b.test") {
		t.Errorf("restored is\n%s", got)
	}
}

func TestModeAndOwnerStayAndAHardLinkKeepsTheOldBytes(t *testing.T) {
	h := newHost(t)
	h.put("etc/pki/server.key", "old key", 0o640)
	p := filepath.Join(h.dir, "etc/pki/server.key")
	if os.Geteuid() == 0 {
		if err := os.Chown(p, 0, 34); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(p, filepath.Join(h.dir, "etc/pki/server.key.backup")); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(p)
	r, _ := h.start()
	h.replaced(r, "new")
	after, _ := os.Stat(p)
	if before.Mode() != after.Mode() || owner(before) != owner(after) {
		t.Errorf("mode and owner were %v %v and are %v %v", before.Mode(), owner(before), after.Mode(), owner(after))
	}
	if got := h.get("etc/pki/server.key.backup"); got != "old key" {
		t.Errorf("the link holds %q", got)
	}
}

func TestAReusedKeyIsNotTouched(t *testing.T) {
	h := newHost(t)
	r, _ := h.start()
	before, _ := os.Stat(filepath.Join(h.dir, "etc/pki/server.key"))
	next := content("old")
	next.Certificate = []byte("new leaf")
	if err := r.Replace(server, content("old").Digests(), next); err != nil {
		t.Fatal(err)
	}
	h.holds("old", "new")
	if after, _ := os.Stat(filepath.Join(h.dir, "etc/pki/server.key")); !os.SameFile(before, after) {
		t.Error("the key's file is another")
	}
	r.Close()
	r, s := h.start()
	if s.Leaf != leaf("new") || s.Blocked != "" {
		t.Errorf("waiting is %+v", s)
	}
	if err := r.Restore(server.ID, leaf("new")); err != nil {
		t.Fatal(err)
	}
	h.holds("old", "old")
}

func TestOnePairAtATimeWaits(t *testing.T) {
	h := newHost(t)
	r, _ := h.start()
	h.replaced(r, "new")
	for _, p := range []Pair{server, admin} {
		if err := r.Replace(p, content("old").Digests(), content("third")); !errors.Is(err, ErrWritten) {
			t.Errorf("%s: %v", p.ID, err)
		}
	}
	h.holds("new", "new")
	r.Close()
	r, s := h.start() // and another process knows
	if err := r.Replace(admin, content("old").Digests(), content("third")); !errors.Is(err, ErrWritten) || s.Leaf != leaf("new") {
		t.Errorf("%v, waiting is %+v", err, s)
	}
}

func TestWhatTheCallerDoesNotKnowStays(t *testing.T) {
	for sentence, change := range map[string]func(h host){
		"the key":  func(h host) { h.put("etc/pki/server.key", "their key", 0o600) },
		"the leaf": func(h host) { h.put("etc/pki/server.crt", "their leaf", 0o644) },
	} {
		h := newHost(t)
		r, _ := h.start()
		change(h)
		before := [2]string{h.get("etc/pki/server.key"), h.get("etc/pki/server.crt")}
		err := r.Replace(server, content("old").Digests(), content("new"))
		if after := [2]string{h.get("etc/pki/server.key"), h.get("etc/pki/server.crt")}; !errors.Is(err, ErrChanged) || before != after {
			t.Errorf("%s: %v, now %q", sentence, err, after)
		}
		if s := r.Waiting(); s != (Status{}) {
			t.Errorf("%s: waiting is %+v", sentence, s)
		}
	}
}

func TestSomebodyElsesPairIsNeitherKeptNorTakenAway(t *testing.T) {
	for sentence, half := range map[string]string{"the key": "etc/pki/server.key", "the leaf": "etc/pki/server.crt"} {
		h := newHost(t)
		r, _ := h.start()
		h.replaced(r, "new")
		h.put(half, "theirs", 0o600)
		before := [2]string{h.get("etc/pki/server.key"), h.get("etc/pki/server.crt")}
		if err := r.Keep(server.ID, leaf("new")); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v", sentence, err)
		}
		if err := r.Restore(server.ID, leaf("new")); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v", sentence, err)
		}
		s, err := r.Recover(server)
		if err != nil || !strings.Contains(s.Blocked, h.path(half)+" is neither old nor new") {
			t.Errorf("%s: %+v, %v", sentence, s, err)
		}
		if after := [2]string{h.get("etc/pki/server.key"), h.get("etc/pki/server.crt")}; before != after {
			t.Errorf("%s: now %q", sentence, after)
		}
		if err := errors.Join(r.Abandon(server.ID)); err != nil || r.Waiting() != (Status{}) {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}

func (h host) path(name string) string { return "/" + name }

func TestTheLastTwoGenerationsAreCopiedAndNoMore(t *testing.T) {
	h := newHost(t)
	r, _ := h.start()
	for _, which := range []string{"second", "third", "fourth"} {
		h.replaced(r, which)
		if err := r.Keep(server.ID, leaf(which)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // what fails and is tried again pushes nothing out
		h.replaced(r, "bad")
		if err := r.Restore(server.ID, leaf("bad")); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	names, _ := filepath.Glob(filepath.Join(h.dir, "state/copies/*"))
	for _, name := range names {
		b, _ := os.ReadFile(name)
		got = append(got, string(b))
		info, _ := os.Stat(name)
		if info.Mode().Perm() != 0o600 || !strings.HasPrefix(filepath.Base(name), "etcd_server.") {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	slices.Sort(got)
	if want := []string{"fourth key", "fourth leaf", "third key", "third leaf"}; !slices.Equal(got, want) {
		t.Errorf("copied are %q, want %q", got, want)
	}
	if info, _ := os.Stat(filepath.Join(h.dir, "state/copies")); info.Mode().Perm() != 0o700 {
		t.Errorf("their directory has mode %v", info.Mode())
	}
}

// TestRecoverMakesOneGenerationOfTwo has each mixture that a kill can leave.
func TestRecoverMakesOneGenerationOfTwo(t *testing.T) {
	for sentence, tt := range map[string]struct {
		phase     phase
		key, leaf string
		staged    string // of the certificate
		want      string
		waits     bool
	}{
		"nothing was renamed":               {phaseStaged, "old", "old", "new leaf", "old", false},
		"the key, and the other is staged":  {phaseStaged, "new", "old", "new leaf", "new", true},
		"the key, and the other is not":     {phaseStaged, "new", "old", "", "old", false},
		"the key, and the other is cut off": {phaseStaged, "new", "old", "new le", "old", false},
		"both":                              {phaseStaged, "new", "new", "", "new", true},
		"both, and it was noted":            {phaseWritten, "new", "new", "", "new", true},
		"restore had not begun":             {phaseRestoring, "new", "new", "old leaf", "new", true},
		"restored was the key":              {phaseRestoring, "old", "new", "old leaf", "old", false},
		"restored was the key alone":        {phaseRestoring, "old", "new", "", "old", false},
		"restored were both":                {phaseRestoring, "old", "old", "", "old", false},
		"a lost rename of the key":          {phaseStaged, "old", "new", "", "old", false},
	} {
		t.Run(sentence, func(t *testing.T) {
			h := newHost(t)
			r, _ := h.start()
			h.replaced(r, "new")
			if err := r.note(tt.phase); err != nil {
				t.Fatal(err)
			}
			r.Close()
			h.put("etc/pki/server.key", tt.key+" key", 0o600)
			h.put("etc/pki/server.crt", tt.leaf+" leaf", 0o644)
			if tt.staged != "" {
				h.put("etc/pki/.server.crt123456", tt.staged, 0o644)
			}
			r, s := h.start()
			h.holds(tt.want, tt.want)
			if s.Blocked != "" || tt.waits != (s.Leaf == leaf("new")) {
				t.Errorf("%+v", s)
			}
			if again, err := r.Recover(server); err != nil || again != s {
				t.Errorf("again: %+v, %v", again, err)
			}
			if !tt.waits {
				h.replaced(r, "third")
			} else if err := r.Restore(server.ID, leaf("new")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRecoverGuessesNothing(t *testing.T) {
	for sentence, tt := range map[string]struct{ key, leaf, want string }{
		"half of it put back": {"old key", "new leaf", "server.key is old, /etc/pki/server.crt is new"},
		"another's key":       {"their key", "new leaf", "server.key is neither old nor new, /etc/pki/server.crt is new"},
		"another's leaf":      {"new key", "their leaf", "server.key is new, /etc/pki/server.crt is neither old nor new"},
		"another's pair":      {"their key", "their leaf", "server.key is neither"},
		"no key":              {"", "new leaf", "hold /etc/pki/server.key: missing"},
	} {
		t.Run(sentence, func(t *testing.T) {
			h := newHost(t)
			r, _ := h.start()
			h.replaced(r, "new")
			r.Close()
			h.put("etc/pki/server.key", tt.key, 0o600)
			h.put("etc/pki/server.crt", tt.leaf, 0o644)
			if tt.key == "" {
				_ = os.Remove(filepath.Join(h.dir, "etc/pki/server.key"))
			}
			_, s := h.start()
			if !strings.Contains(s.Blocked, tt.want) || s.Leaf != leaf("new") {
				t.Errorf("%+v, want %q", s, tt.want)
			}
			if k, l := h.get("etc/pki/server.key"), h.get("etc/pki/server.crt"); k != tt.key || l != tt.leaf {
				t.Errorf("now %q and %q", k, l)
			}
		})
	}
}

func TestWhatWasStagedBeforeTheJournalIsRemoved(t *testing.T) {
	h := newHost(t)
	for name, content := range map[string]string{"etc/pki/.server.key77": "new key", "etc/.admin.conf8": "x",
		"state/.replace.json9": "{}"} {
		h.put(name, content, 0o600)
	}
	h.start()
	h.holds("old", "old")
	if got := h.get("state/.replace.json9"); got != "" {
		t.Errorf("the state directory keeps %q", got)
	}
}

func TestAJournalThatIsNotOursIsAnError(t *testing.T) {
	for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"waiting":{"id":"a"}}`,
		`{"version":1,"waiting":{"id":"../a","kubeconfig":"/a","halves":[{}],"copy":{"files":[""]}}}`} {
		h := newHost(t)
		h.put("state/replace.json", text, 0o600)
		state, err := h.tree().Directory("/state")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(h.tree(), state); err == nil || !strings.Contains(err.Error(), "journal replace.json") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestASecondProcessIsRefused(t *testing.T) {
	h := newHost(t)
	h.start()
	state, err := h.tree().Directory("/state")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(h.tree(), state); !errors.Is(err, disk.ErrLocked) {
		t.Error(err)
	}
}

func TestWhatIsNoPairIsRefused(t *testing.T) {
	h := newHost(t)
	r, _ := h.start()
	for _, p := range []Pair{{}, {ID: "a"}, {ID: "../a", Kubeconfig: "/a"}, {ID: "a_b", Kubeconfig: "/a"},
		{ID: "a", Kubeconfig: "a"}, {ID: "a", Kubeconfig: "/a/../b"}, {ID: "a", Key: "/a", Certificate: "/a"},
		{ID: "a", Key: "/a", Certificate: "/b", Kubeconfig: "/c"}, {ID: "a", Key: "/a"}} {
		if _, err := r.Read(p); err == nil {
			t.Errorf("%+v was read", p)
		}
		if err := r.Replace(p, Digests{}, content("new")); err == nil {
			t.Errorf("%+v was replaced", p)
		}
	}
}

func TestAFailureLeavesTheOldPair(t *testing.T) {
	for sentence, tt := range map[string]struct {
		make func(h host)
		want string
	}{
		"no room for the copies": {func(h host) { h.put("state/copies", "", 0o600) }, "copy"},
		"no place for a journal": {func(h host) {
			if err := os.Mkdir(filepath.Join(h.dir, "state/replace.json"), 0o700); err != nil {
				h.Fatal(err)
			}
		}, "journal"},
		"a pair in a folder of others": {func(h host) {
			if err := os.Chmod(filepath.Join(h.dir, "etc/pki"), 0o777); err != nil { //nolint:gosec // the test
				h.Fatal(err)
			}
		}, "lets others than its owner write"},
		"a key of others": {func(h host) { h.put("etc/pki/server.key", "old key", 0o660) }, "lets others than its owner write"},
	} {
		t.Run(sentence, func(t *testing.T) {
			h := newHost(t)
			r, _ := h.start()
			tt.make(h)
			err := r.Replace(server, content("old").Digests(), content("new"))
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrUnsettled) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			h.holds("old", "old")
			if s := r.Waiting(); s != (Status{}) {
				t.Errorf("waiting is %+v", s)
			}
		})
	}
}

func TestADamagedCopyIsNotRestored(t *testing.T) {
	h := newHost(t)
	r, _ := h.start()
	h.replaced(r, "new")
	names, _ := filepath.Glob(filepath.Join(h.dir, "state/copies/*"))
	for _, name := range names {
		if err := os.WriteFile(name, []byte("zeros"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Restore(server.ID, leaf("new")); err == nil || !strings.Contains(err.Error(), "not those that were copied") {
		t.Error(err)
	}
	h.holds("new", "new")
	if s := r.Waiting(); s.Leaf != leaf("new") {
		t.Errorf("waiting is %+v", s)
	}
}

func TestNoByteOfAKeyIsInTheJournal(t *testing.T) {
	h := newHost(t)
	r, _ := h.start()
	h.replaced(r, "new")
	if text := h.get("state/replace.json"); strings.Contains(text, "key\x00") || strings.Contains(text, "new key") ||
		strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("new key"))) {
		t.Error(text)
	}
	if got := fmt.Sprintf("%v %+v %#v", content("a"), content("a"), content("a")); strings.Contains(got, "a key") {
		t.Error(got)
	}
}
