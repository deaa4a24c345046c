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

	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
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

// What an identity needs is in its file. A path in there would be opened by whoever looks at it: root.
func TestAStoredIdentityNamesNoFile(t *testing.T) {
	w := newEnv(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	save(t, ca, w.ca.PEM())
	f := w.file("10-token", "good")
	text := string(f.Content.Reveal())
	from := strings.Index(text, "certificate-authority-data")
	f.Content = secret.New([]byte(text[:from] + "certificate-authority: " + ca +
		text[from+strings.Index(text[from:], "}"):]))
	w.files = []bootstrap.Credential{f}
	w.until(w.manager(), Active, time.Minute)
	if notes := noted(t, w); strings.Contains(notes, ca) || !strings.Contains(notes, data(w.ca.PEM())) {
		t.Errorf("it holds %s", notes)
	}
	if err := os.Remove(ca); err != nil {
		t.Fatal(err)
	}
	m := w.manager()
	w.until(m, Active, time.Minute)
	if got := w.currentUser(m); got != us {
		t.Errorf("without the file known as %q", got)
	}
}

// noted is what identity.pem says beside certificate and key.
func noted(t *testing.T, w *env) string {
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
		id, err := Load(w, "worker-1")
		if err != nil {
			t.Fatal(err)
		}
		if s := Review(t.Context(), id); !s.Untrusted {
			t.Errorf("the server is %+v", s)
		}
	})
}

func TestABootstrapFileWhoseCAFileIsReplacedIsAnother(t *testing.T) {
	w := newEnv(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	save(t, ca, w.next().PEM())
	f := w.file("10-token", "good")
	text := string(f.Content.Reveal())
	from := strings.Index(text, "certificate-authority-data")
	f.Content = secret.New([]byte(text[:from] + "certificate-authority: " + ca +
		text[from+strings.Index(text[from:], "}"):]))
	w.files = []bootstrap.Credential{f}
	m := w.manager()
	if s := w.advance(m, 5*time.Minute); s.State == Active {
		t.Fatal("a server that nothing verifies was believed")
	}
	save(t, ca, w.ca.PEM())
	w.until(m, Active, time.Minute)
}
