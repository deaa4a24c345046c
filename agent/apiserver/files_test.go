// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fifo is a named pipe that nobody writes to: whoever opens it in the usual way waits for ever.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// returns fails unless f comes back.
func returns(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for ever")
	}
}

func TestAKubeconfigNamesRegularFilesOnly(t *testing.T) {
	_, ca := server(t)
	cert, key := pair(t, "n")
	trust := "server: 'https://x', certificate-authority-data: " + data(ca)
	for _, special := range []string{fifo(t), "/dev/zero", t.TempDir()} {
		for field, c := range map[string][2]string{
			"certificate-authority": {"server: 'https://x', certificate-authority: " + special, "token: geheim"},
			"tokenFile":             {trust, "tokenFile: " + special},
			"client-certificate":    {trust, "client-certificate: " + special + ", client-key-data: " + data(key)},
			"client-key":            {trust, "client-key: " + special + ", client-certificate-data: " + data(cert)},
		} {
			path := kubeconfig(t, c[0], c[1])
			returns(t, func() {
				if _, err := FromKubeconfig(path); err == nil || !strings.HasSuffix(err.Error(),
					field+": "+special+": not a regular file") {
					t.Errorf("%s: %v", field, err)
				}
			})
		}
	}
	returns(t, func() {
		if _, err := FromKubeconfig(fifo(t)); err == nil || !strings.HasSuffix(err.Error(), "not a regular file") {
			t.Errorf("the kubeconfig itself: %v", err)
		}
	})
}

// To open a device may set it to work: /dev/watchdog restarts a host that then does not go on writing to it.
func TestWhatIsNoRegularFileIsNotEvenOpened(t *testing.T) {
	pipe := fifo(t)
	watch, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(watch)
	if _, err := syscall.InotifyAddWatch(watch, pipe, syscall.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	if _, err := FromKubeconfig(pipe); err == nil {
		t.Error("it is accepted")
	}
	if n, _ := syscall.Read(watch, make([]byte, 4096)); n > 0 {
		t.Error("it was opened")
	}
}

func TestAFileThatAKubeconfigNamesIsNotReadWithoutEnd(t *testing.T) {
	long := filepath.Join(t.TempDir(), "long")
	save(t, long, nil)
	if err := os.Truncate(long, 1<<40); err != nil {
		t.Fatal(err)
	}
	_, err := FromKubeconfig(kubeconfig(t, "server: 'https://x', certificate-authority: "+long, "token: geheim"))
	if err == nil || !strings.HasSuffix(err.Error(), "certificate-authority: "+long+": larger than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
}
