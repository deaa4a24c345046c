// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
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
				if _, err := FromKubeconfig(path); err == nil || !strings.HasSuffix(err.Error(), field+": "+special+": not a regular file") {
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

// What an identity needs is in its file. A path in there would be opened by whoever looks at it: root.
func TestAStoredIdentityNamesNoFile(t *testing.T) {
	w := newWorld(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	save(t, ca, w.ca.PEM())
	f := w.file("10-token", "good")
	text := string(f.Content.Reveal())
	from := strings.Index(text, "certificate-authority-data")
	f.Content = secret.New([]byte(text[:from] + "certificate-authority: " + ca + text[from+strings.Index(text[from:], "}"):]))
	w.files = []File{f}
	w.until(w.keeper(), Active, time.Minute)
	if notes := noted(t, w); strings.Contains(notes, ca) || !strings.Contains(notes, data(w.ca.PEM())) {
		t.Errorf("it holds %s", notes)
	}
	if err := os.Remove(ca); err != nil {
		t.Fatal(err)
	}
	k := w.keeper()
	w.until(k, Active, time.Minute)
	if got := w.whoGoesThrough(k); got != us {
		t.Errorf("without the file known as %q", got)
	}
}

// noted is what identity.pem says beside certificate and key.
func noted(t *testing.T, w *world) string {
	t.Helper()
	content := w.dir[currentFile]
	block, _ := pem.Decode(content[bytes.Index(content, []byte("-----BEGIN "+notesBlock)):])
	if block == nil {
		t.Fatal("there are no notes")
	}
	return string(block.Bytes)
}

func TestAPathInAStoredIdentityIsNotOpened(t *testing.T) {
	w, _ := active(t)
	content := w.dir[currentFile]
	at := bytes.Index(content, []byte("-----BEGIN "+notesBlock))
	block, _ := pem.Decode(content[at:])
	var notes map[string]any
	if err := json.Unmarshal(block.Bytes, &notes); err != nil {
		t.Fatal(err)
	}
	cluster := notes["cluster"].(map[string]any)
	delete(cluster, "certificateAuthority")
	cluster["certificateAuthorityFile"] = fifo(t)
	block.Bytes, _ = json.Marshal(notes)
	w.dir[currentFile] = append(bytes.Clone(content[:at]), pem.EncodeToMemory(block)...)
	returns(t, func() {
		id, err := Stored(w, "worker-1")
		if err != nil {
			t.Fatal(err)
		}
		if s := id.Ask(t.Context()); !s.Untrusted {
			t.Errorf("the server is %+v", s)
		}
	})
}

func TestACAFileThatIsReplacedVerifiesTheNextConnections(t *testing.T) {
	w := newWorld(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	save(t, ca, w.ca.PEM())
	id, err := FromKubeconfig(kubeconfig(t, "server: '"+w.server.URL+"', certificate-authority: "+ca, "token: good"))
	if err != nil {
		t.Fatal(err)
	}
	later := func() { id.client.Transport.(*refreshing).looked = time.Time{} }
	if s := id.Ask(t.Context()); s.User != "system:bootstrap:good" {
		t.Fatalf("before: %+v", s)
	}
	next := w.next()
	w.reissued(next)
	id.HTTPClient().CloseIdleConnections()
	if s := id.Ask(t.Context()); !s.Untrusted {
		t.Fatalf("with another CA at the server: %+v", s)
	}
	save(t, ca, []byte("half a fi"))
	later()
	if s := id.Ask(t.Context()); !s.Untrusted {
		t.Errorf("with a CA file that holds none: %+v", s)
	}
	save(t, ca, next.PEM())
	later()
	if s := id.Ask(t.Context()); s.User != "system:bootstrap:good" {
		t.Errorf("with its CA in the file: %+v", s)
	}
}

func TestABootstrapFileWhoseCAFileIsReplacedIsAnother(t *testing.T) {
	w := newWorld(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	save(t, ca, w.next().PEM())
	f := w.file("10-token", "good")
	text := string(f.Content.Reveal())
	from := strings.Index(text, "certificate-authority-data")
	f.Content = secret.New([]byte(text[:from] + "certificate-authority: " + ca + text[from+strings.Index(text[from:], "}"):]))
	w.files = []File{f}
	k := w.keeper()
	if s := w.pass(k, 5*time.Minute); s.State == Active {
		t.Fatal("a server that nothing verifies was believed")
	}
	save(t, ca, w.ca.PEM())
	w.until(k, Active, time.Minute)
}

func TestASnapshotNeedsNoFileAnyMore(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	mine := w.ca.Client(us, "node-cert-agent:nodes")
	for name, b := range map[string][]byte{"ca.crt": w.ca.PEM(), "cert": mine.Cert, "key": mine.Key, "token": []byte("good\n")} {
		save(t, filepath.Join(dir, name), b)
	}
	trust := "server: '" + w.server.URL + "', certificate-authority: " + dir + "/ca.crt"
	byCert, err := Snapshot(kubeconfig(t, trust, "client-certificate: "+dir+"/cert, client-key: "+dir+"/key"))
	if err != nil {
		t.Fatal(err)
	}
	byToken, err := Snapshot(kubeconfig(t, trust, "tokenFile: "+dir+"/token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []*Identity{byCert, byToken} {
		if c := id.config.transport; c.TLS.CertFile+c.TLS.KeyFile+c.TLS.CAFile+c.BearerTokenFile != "" {
			t.Error("it names files")
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if s := byCert.Ask(t.Context()); s.User != us {
		t.Errorf("by certificate: %+v", s)
	}
	if s := byToken.Ask(t.Context()); s.User != "system:bootstrap:good" {
		t.Errorf("by token: %+v", s)
	}
}
