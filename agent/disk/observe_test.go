// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func observe(t *testing.T, tree *Tree, queries ...Query) []plan.File {
	t.Helper()
	files := slices.Collect(tree.Observe(queries))
	if len(files) != len(queries) {
		t.Fatalf("%d answers to %d looks", len(files), len(queries))
	}
	return files
}

func TestObserveTellsWhatStandsThere(t *testing.T) {
	before := time.Now().Add(-time.Second)
	dir := files{
		"ca.crt": "old", "folder/": "", "pipe": "|", "link": "-> ca.crt", "loop": "-> loop",
		"big": strings.Repeat("x", MaxSize+1), "limit": strings.Repeat("x", MaxSize),
		"certs.d/known/ca.crt": "r", "certs.d/file": "f", "certs.d/pipe": "|", "certs.d/link": "-> known",
		"link.d": "-> certs.d", "pki/ca.crt": "ca", "pki/ca.key": "k", "pki/other.crt": "other", "certs.d/keyed/ca.crt": "r",
		"certs.d/keyed/ca.key": "k",
	}.make(t)
	for sentence, c := range map[string]struct {
		file, name string
		kind       plan.FileKind
		reason     string
	}{
		"a file is regular":                          {"ca.crt", "", plan.Regular, ""},
		"a file of the largest size is regular":      {"limit", "", plan.Regular, ""},
		"a larger one is not touched":                {"big", "", plan.Irregular, "2097153 bytes"},
		"nothing is absent":                          {"none", "", plan.Absent, ""},
		"a directory is refused":                     {"folder", "", plan.Irregular, "a directory"},
		"a pipe is not opened":                       {"pipe", "", plan.Irregular, "a named pipe"},
		"a link is not followed":                     {"link", "", plan.Irregular, "a symbolic link"},
		"a missing directory is ours to report":      {"none/ca.crt", "", plan.Absent, "does not exist"},
		"a directory that loops cannot be told":      {"loop/ca.crt", "", plan.Unreadable, "symbolic links"},
		"a directory that is a pipe is refused":      {"pipe/ca.crt", "", plan.Irregular, "a named pipe"},
		"the administrator may link directories":     {"link.d/{name}/ca.crt", "known", plan.Regular, ""},
		"an entry is regular":                        {"certs.d/{name}/ca.crt", "known", plan.Regular, ""},
		"an entry without a directory is absent":     {"certs.d/{name}/ca.crt", "new:5000", plan.Absent, ""},
		"an entry without the top is ours to report": {"none/{name}/ca.crt", "new", plan.Absent, "does not exist"},
		"a file in place of an own directory":        {"certs.d/{name}/ca.crt", "file", plan.Irregular, "a regular file"},
		"a link in place of an own directory":        {"certs.d/{name}/ca.crt", "link", plan.Irregular, "a symbolic link"},
		"a pipe in place of an own directory":        {"certs.d/{name}/ca.crt", "pipe", plan.Irregular, "a named pipe"},
		"a bundle beside its key is refused":         {"pki/ca.crt", "", plan.Irregular, "beside a private key, ca.key"},
		"one that is yet to come is, too":            {"pki/ca.pem", "", plan.Irregular, "beside a private key, ca.key"},
		"a neighbour of theirs is not":               {"pki/other.crt", "", plan.Regular, ""},
		"an entry beside its key is refused": {"certs.d/{name}/ca.crt", "keyed", plan.Irregular,
			"beside a private key, ca.key"},
		"an own directory without the file is absent": {"certs.d/{name}/key", "known", plan.Absent, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := observe(t, open(t, "/"), Query{Target: target(t, filepath.Join(dir, c.file), c.name)})[0]
			if got.Kind != c.kind || !strings.Contains(got.Reason, c.reason) || (c.reason == "") != (got.Reason == "") {
				t.Fatalf("got %q (%s), want %q (%s)", got.Kind, got.Reason, c.kind, c.reason)
			}
			if c.kind != plan.Regular {
				return
			}
			if got.Digest != plan.DigestOf(got.Data) || got.Mode != 0o644 || got.UID != os.Geteuid() ||
				got.Changed.Before(before) {
				t.Errorf("facts do not fit: %v %v %d %v", got.Digest, got.Mode, got.UID, got.Changed)
			}
		})
	}
}

func TestObserveMovesNoKnownBytes(t *testing.T) {
	dir := files{"ca.crt": "old"}.make(t)
	at := target(t, filepath.Join(dir, "ca.crt"), "")
	got := observe(t, open(t, "/"), Query{at, plan.DigestOf([]byte("old"))}, Query{at, plan.DigestOf([]byte("other"))})
	if got[0].Data != nil || got[0].Digest != plan.DigestOf([]byte("old")) {
		t.Errorf("known content was returned: %q", got[0].Data)
	}
	if string(got[1].Data) != "old" {
		t.Errorf("got %q, want the content, as it is not the one that was known", got[1].Data)
	}
}

func TestObserveShowsSpecialBits(t *testing.T) {
	dir := files{"ca.crt": "old"}.make(t)
	if err := os.Chmod(filepath.Join(dir, "ca.crt"), 0o644|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	got := observe(t, open(t, "/"), Query{Target: target(t, filepath.Join(dir, "ca.crt"), "")})[0]
	if got.Mode == 0o644 {
		t.Error("a set-user-ID file looks like any other")
	}
}

func TestPlainModeStaysBelowItsRoot(t *testing.T) {
	out := files{"ca.crt": "outside"}.make(t)
	dir := files{
		"in/ca.crt": "inside", "absolute": "-> " + out, "relative": "-> ../../../../../../../../../.." + out,
		"within": "-> in", "up": "-> ..",
	}.make(t)
	tree := open(t, dir)
	for sentence, c := range map[string]struct{ file, data string }{
		"a path begins at the root":         {"/in/ca.crt", "inside"},
		"a link within is followed":         {"/within/ca.crt", "inside"},
		"an absolute link is not followed":  {"/absolute/ca.crt", ""},
		"a link out is not followed":        {"/relative/ca.crt", ""},
		"a link to above is not followed":   {"/up/ca.crt", ""},
		"a path of the host does not exist": {filepath.Join(out, "ca.crt"), ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			at := target(t, c.file, "")
			if got := observe(t, tree, Query{Target: at})[0]; string(got.Data) != c.data {
				t.Errorf("read %q, want %q", got.Data, c.data)
			}
			if err := tree.Commit([]Change{{at, []byte(c.data)}}, nil); (err == nil) != (c.data != "") {
				t.Errorf("commit: %v", err)
			}
		})
	}
	if got := tell(t, out); len(got) != 1 || got["ca.crt"] != "outside" {
		t.Errorf("outside there is now %v", got)
	}
}
