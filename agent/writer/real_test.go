// SPDX-License-Identifier: Apache-2.0

//go:build real

package writer

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func TestWriterIsReplacedWhenItCannotWrite(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "mode=755,size=64k"); err != nil {
		t.Fatalf("mount (this test needs root): %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	tree, err := disk.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	spec := plan.FileSpec{Field: plan.RootCAData, Path: filepath.Join(dir, "ca.crt"), Mode: 0o644}
	local := New([]plan.FileSpec{spec}, tree, valid)
	ln := listen(t, filepath.Join(t.TempDir(), "s"))
	s := start(t, ln, always(local), everyone)
	c := Dial(s.socket)
	if err := c.Commit(context.Background(), writes(spec.Field, "", "valid")); kind(err) != readOnly {
		t.Errorf("the commit was answered %v", err)
	}
	if err := <-s.done; kind(err) != readOnly {
		t.Errorf("the writer ended with %v", err)
	}
	// systemd starts a new process with a new mount name space.
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	if err := ln.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	start(t, ln, always(local), everyone)
	if err := c.Commit(context.Background(), writes(spec.Field, "", "valid")); err != nil {
		t.Errorf("the next writer answers %v", err)
	}
	if b, err := os.ReadFile(spec.Path); string(b) != "valid" {
		t.Errorf("the file holds %q, %v", b, err)
	}
}

func TestKernelTellsWhoThePeerIs(t *testing.T) {
	local, _ := newLocal(t)
	socket := filepath.Join(t.TempDir(), "s")
	ln := listen(t, socket)
	for p := socket; p != os.TempDir(); p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, ln, always(local), func(uid uint32) bool { return uid == 0 || uid == 1234 })
	for uid, want := range map[int]errorKind{1234: "", 1235: unavailable} {
		answer := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with its user
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				answer <- errno
				return
			}
			_, err := Dial(socket).Sweep(context.Background())
			answer <- err
		}()
		if err := <-answer; kind(err) != want || (want == "") != (err == nil) {
			t.Errorf("user %d is answered %v, want %q", uid, err, want)
		}
	}
	if _, err := Dial(socket).Sweep(context.Background()); err != nil {
		t.Errorf("root is answered %v", err)
	}
	if !strings.Contains(s.log.String(), "<4>writer refused a peer: uid=1235 ") {
		t.Errorf("recorded %q", s.log)
	}
}
