// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// middle is the text between the first two bars of a file.
var middle = &Editor{
	Get: func(file []byte) ([]byte, error) {
		parts := bytes.Split(file, []byte("|"))
		if len(parts) != 3 {
			return nil, errors.New("has no middle")
		}
		return parts[1], nil
	},
	Set: func(file, part []byte) ([]byte, error) {
		parts := bytes.Split(file, []byte("|"))
		if len(parts) != 3 {
			return nil, errors.New("has no middle")
		}
		return bytes.Join([][]byte{parts[0], part, parts[2]}, []byte("|")), nil
	},
}

func inPart(dir, file string) Target {
	return Target{Path: filepath.Join(dir, file), Mode: 0o644, Editor: middle}
}

func TestOnlyThePartIsSeen(t *testing.T) {
	dir := files{"config": "token|old|token", "odd": "token", "ca.key": "k"}.make(t)
	known := observe(t, open(t, "/"), Query{inPart(dir, "config"), plan.DigestOf([]byte("old"))})[0]
	if known.Kind != plan.Regular || known.Digest != plan.DigestOf([]byte("old")) || known.Data != nil {
		t.Errorf("what is known: %+v", known)
	}
	if got := observe(t, open(t, "/"), Query{Target: inPart(dir, "config")})[0]; string(got.Data) != "old" {
		t.Errorf("read %q, want the part", got.Data)
	}
	for file, want := range map[string]plan.File{
		"odd":  {Kind: plan.Irregular, Reason: "has no middle"},
		"none": {Kind: plan.Absent, Reason: "missing, and it is not ours to make"},
	} {
		if got := observe(t, open(t, "/"), Query{Target: inPart(dir, file)})[0]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", file, got, want)
		}
	}
}

func TestAPartIsReplacedAndTheFileKeepsItsModeAndOwner(t *testing.T) {
	dir := files{"config": "token|old|token"}.make(t)
	name := filepath.Join(dir, "config")
	if err := os.Chmod(name, 0o640); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(name, 12, 34); err != nil {
			t.Fatal(err)
		}
	}
	before := observe(t, open(t, "/"), Query{Target: inPart(dir, "config")})[0]
	if err := open(t, "/").Commit([]Change{{inPart(dir, "config"), []byte("new")}}, nil); err != nil {
		t.Fatal(err)
	}
	after := observe(t, open(t, "/"), Query{Target: inPart(dir, "config")})[0]
	if got := tell(t, dir); !maps.Equal(got, files{"config": "token|new|token"}) {
		t.Errorf("now there is %v", got)
	}
	if after.Mode != 0o640 || after.UID != before.UID || after.GID != before.GID {
		t.Errorf("mode and owner were %v %d:%d and are %v %d:%d", before.Mode, before.UID, before.GID, after.Mode, after.UID,
			after.GID)
	}
}

func TestAFileOfWhichOnlyPartIsOursIsNeitherMadeNorRemovedNorReplacedWhole(t *testing.T) {
	for sentence, c := range map[string]struct {
		file   string
		remove bool
		reason string
	}{
		"it is not made":              {"none", false, "missing"},
		"it is not removed":           {"config", true, "only part of it is ours"},
		"it is not replaced as whole": {"odd", false, "has no middle"},
	} {
		t.Run(sentence, func(t *testing.T) {
			host := files{"config": "token|old|token", "odd": "token"}
			dir := host.make(t)
			changes, removals := []Change{{inPart(dir, c.file), []byte("new")}}, []Removal(nil)
			if c.remove {
				changes, removals = nil, []Removal{{inPart(dir, c.file), plan.DigestOf([]byte("token|old|token"))}}
			}
			if err := open(t, "/").Commit(changes, removals); err == nil || !strings.Contains(err.Error(), c.reason) ||
				strings.Contains(err.Error(), "token") {
				t.Errorf("error %v, want %s", err, c.reason)
			}
			if got := tell(t, dir); !maps.Equal(got, host) {
				t.Errorf("now there is %v", got)
			}
		})
	}
}

func TestAChangeByOthersWhileAPartIsStagedIsNotOverwritten(t *testing.T) {
	for sentence, meddle := range map[string]func(name string) error{
		"written in place": func(name string) error { return os.WriteFile(name, []byte("TOKEN|old|token"), 0o644) },
		"replaced": func(name string) error {
			return errors.Join(os.WriteFile(name+"2", []byte("TOKEN|old|token"), 0o644), os.Rename(name+"2", name))
		},
		"made private": func(name string) error {
			return errors.Join(os.WriteFile(name, []byte("TOKEN|old|token"), 0o644), os.Chmod(name, 0o600))
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			dir := files{"config": "token|old|token, and more of it"}.make(t)
			at := inPart(dir, "config")
			at.Editor = &Editor{Get: middle.Get, Set: func(file, part []byte) ([]byte, error) {
				if err := meddle(at.Path); err != nil { // after our read of the file
					t.Error(err)
				}
				return middle.Set(file, part)
			}}
			if err := open(t, "/").Commit([]Change{{at, []byte("new")}}, nil); err == nil ||
				!strings.Contains(err.Error(), "somebody else changed the file meanwhile") {
				t.Errorf("error %v", err)
			}
			if got := tell(t, dir); !maps.Equal(got, files{"config": "TOKEN|old|token"}) {
				t.Errorf("now there is %v", got)
			}
		})
	}
}
