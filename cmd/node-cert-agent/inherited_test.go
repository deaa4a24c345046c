// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// askedForSocket makes this test's own program say what inherited makes of its descriptors.
const askedForSocket = "NODECERT_TEST_INHERITED"

func TestTheSocketIsTheOneThatSystemdPassed(t *testing.T) {
	if os.Getenv(askedForSocket) != "" {
		ln, err := inherited()
		if err == nil {
			fmt.Println("said:", ln.Addr(), os.Getenv("LISTEN_FDS")+os.Getenv("LISTEN_PID")+os.Getenv("LISTEN_FDNAMES"))
		} else {
			fmt.Println("said:", err)
		}
		return
	}
	dir := t.TempDir()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	socket, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		passed    *os.File
		variables string
		want      string
	}{
		{socket, "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=a", ln.Addr().String() + " \n"},
		{socket, "LISTEN_PID=1 LISTEN_FDS=1", errNoSocket.Error()},
		{socket, "LISTEN_PID=$$ LISTEN_FDS=0", errNoSocket.Error()},
		{socket, "LISTEN_PID=$$ LISTEN_FDS=2", errNoSocket.Error()},
		{socket, "LISTEN_PID=$$", errNoSocket.Error()},
		{plain, "LISTEN_PID=$$ LISTEN_FDS=1", "taking over the socket: file file+net"},
	} {
		script := c.variables + ` exec "$0" -test.run=^TestTheSocketIsTheOneThatSystemdPassed$`
		cmd := exec.Command("/bin/sh", "-c", script, os.Args[0])
		cmd.Env = append(os.Environ(), askedForSocket+"=1")
		cmd.ExtraFiles = []*os.File{c.passed}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "said: "+c.want) {
			t.Errorf("%s: %v\n%s\nwant %q", c.variables, err, out, c.want)
		}
	}
}
