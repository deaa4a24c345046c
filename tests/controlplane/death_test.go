// SPDX-License-Identifier: Apache-2.0

//go:build real

package controlplane_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// dieWithPlane makes this test binary start a plane in the folder that it names, say so, and wait to
// be killed.
const dieWithPlane = "CONTROLPLANE_TEST_DIE_WITH_PLANE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(dieWithPlane); dir != "" {
		if _, err := controlplane.Start(context.Background(), controlplane.Options{Dir: dir}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {}
	}
	os.Exit(m.Run())
}

func TestTheServersDieWithWhoStartedThem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plane")
	caller := exec.Command(os.Args[0])
	caller.Env = append(os.Environ(), dieWithPlane+"="+dir)
	caller.Stderr = t.Output()
	out, err := caller.StdoutPipe()
	must.Do(t, err)
	must.Do(t, caller.Start())
	_, readErr := bufio.NewReader(out).ReadString('\n')
	servers := processesNaming(t, dir)
	var ends []unix.PollFd
	for _, pid := range servers {
		fd, err := unix.PidfdOpen(pid, 0)
		must.Do(t, err)
		defer unix.Close(fd)
		ends = append(ends, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	must.Do(t, caller.Process.Kill())
	_ = caller.Wait() // it was killed
	must.Do(t, readErr)
	if len(servers) != 3 {
		t.Errorf("%d processes name the state folder, want 3", len(servers))
	}
	for i := range ends {
		if n, err := unix.Poll(ends[i:i+1], 10_000); n != 1 {
			t.Errorf("process %d outlives its caller (%v)", servers[i], err)
			_ = unix.PidfdSendSignal(int(ends[i].Fd), unix.SIGKILL, nil, 0) // leave nothing, even so
		}
	}
}
