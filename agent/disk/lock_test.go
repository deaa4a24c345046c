// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestADirectoryIsLockedOnceAtATime(t *testing.T) {
	tree, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	open := func() *Directory {
		d, err := tree.Directory("/")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	release, err := open().Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open().Lock(); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a second lock: %v", err)
	}
	release()
	release, err = open().Lock()
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	release()
}
