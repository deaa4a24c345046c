// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

func fingerprints(bundle []byte) (out []string) {
	for _, c := range pki.Read(bundle).Certs {
		out = append(out, c.Fingerprint.String())
	}
	return out
}

// recorded is a host with real bundles behind a server.
func recorded(t *testing.T, files map[string][]byte) (*Client, *serving, string) {
	t.Helper()
	local, dir := newLocal(t)
	for p, data := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	local = New(append(specs()[:1], specs()[3:]...), local.tree, validateEntry)
	s := serve(t, local)
	return Dial(s.socket), s, dir
}

func validateEntry(r plan.FileSpec, data []byte) ([]pki.Cert, error) {
	e, err := r.Entry("", data, time.Time{})
	return e.Certs, err
}

func TestEveryFileOfACommitIsRecordedWithWhatComesAndGoes(t *testing.T) {
	old, now, gone, fresh := testpki.Bundle("a", "b"), testpki.Bundle("c"), testpki.Bundle("d"), testpki.Bundle("e")
	kept := append(append([]byte{}, old...), now...)
	c, s, _ := recorded(t, map[string][]byte{"etc/kubernetes/ca.crt": old, "etc/docker/certs.d/gone/ca.crt": gone})
	commit := writes(plan.KubeAPIServerServingCAData, "", string(kept))
	commit.Writes = append(commit.Writes, writes(plan.ImageRegistryBundleData, "new:5000", string(fresh)).Writes...)
	commit.Removals = []plan.CommitRemoval{{Key: key(plan.ImageRegistryBundleData, "gone"), Digest: plan.DigestOf(gone)}}
	if err := c.Commit(context.Background(), commit); err != nil {
		t.Fatal(err)
	}
	peer := fmt.Sprintf(" uid=%d pid=%d\n", os.Geteuid(), os.Getpid())
	want := fmt.Sprintf("<5>writer writes: field=%q entry=\"\" path=\"/etc/kubernetes/ca.crt\" before=%s after=%s "+
		"added=%s "+
		"removed=none",
		"kubeAPIServerServingCAData", plan.DigestOf(old), plan.DigestOf(kept), fingerprints(now)[0]) + peer +
		fmt.Sprintf("<5>writer writes: field=%q entry=\"new:5000\" path=\"/etc/docker/certs.d/new:5000/ca.crt\" before=none "+
			"after=%s added=%s removed=none",
			"imageRegistryBundleData", plan.DigestOf(fresh), fingerprints(fresh)[0]) + peer +
		fmt.Sprintf("<5>writer removes: field=%q entry=\"gone\" path=\"/etc/docker/certs.d/gone/ca.crt\" before=%s "+
			"after=none "+
			"added=none removed=%s",
			"imageRegistryBundleData", plan.DigestOf(gone), fingerprints(gone)[0]) + peer
	if s.log.String() != want {
		t.Errorf("recorded\n%swant\n%s", s.log, want)
	}
	if err := c.Commit(context.Background(), writes(plan.KubeAPIServerServingCAData, "", string(now))); err != nil {
		t.Fatal(err)
	}
	if last := strings.TrimPrefix(s.log.String(), want); !strings.Contains(last,
		" added=none removed="+strings.Join(fingerprints(old), ",")+peer[:5]) {
		t.Errorf("then recorded %q, want two removed", last)
	}
}

func TestTheRecordComesBeforeTheRename(t *testing.T) {
	old, now := testpki.Bundle("a"), testpki.Bundle("b")
	c, s, dir := recorded(t, map[string][]byte{"etc/kubernetes/ca.crt": old})
	var then []byte
	s.log.mu.Lock()
	s.log.before = func() { then, _ = os.ReadFile(filepath.Join(dir, "etc/kubernetes/ca.crt")) }
	s.log.mu.Unlock()
	if err := c.Commit(context.Background(), writes(plan.KubeAPIServerServingCAData, "", string(now))); err != nil {
		t.Fatal(err)
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if string(then) != string(old) {
		t.Errorf("when it was recorded the file held %q", then)
	}
}

func TestWhatCannotBeRecordedIsNotDone(t *testing.T) {
	now := testpki.Bundle("b")
	large := strings.Repeat("x", disk.MaxSize+1)
	c, s, dir := recorded(t, map[string][]byte{"etc/kubernetes/ca.crt": []byte(large)})
	commit := writes(plan.ImageRegistryBundleData, "new", string(now))
	commit.Writes = append(commit.Writes, writes(plan.KubeAPIServerServingCAData, "", string(now)).Writes...)
	if err := c.Commit(context.Background(), commit); kind(err) != failed || !strings.Contains(err.Error(), "record") {
		t.Errorf("answered %v", err)
	}
	if got := readTree(t, dir); got["etc/kubernetes/ca.crt"] != large || got["etc/docker/certs.d/new/ca.crt"] != "" {
		t.Error("a file was changed")
	}
	if strings.Contains(s.log.String(), "writer writes") {
		t.Errorf("recorded %.300q", s.log)
	}
}

func TestACommitThatFailsIsRecordedAsSuch(t *testing.T) {
	now := testpki.Bundle("b")
	c, s, _ := recorded(t, nil)
	commit := writes(plan.ImageRegistryBundleData, "new", string(now))
	commit.Removals = []plan.CommitRemoval{{Key: key(plan.ImageRegistryBundleData, "theirs"), Digest: plan.DigestOf(now)}}
	if err := c.Commit(context.Background(), commit); kind(err) != failed {
		t.Errorf("answered %v", err)
	}
	if got := s.log.String(); strings.Count(got, "\n") != 3 || !strings.Contains(got,
		"\n<4>writer stopped: reason=\"remove ") {
		t.Errorf("recorded %q", got)
	}
}

func TestRecordsOfManyCertificatesAreComplete(t *testing.T) {
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprint("ca ", i))
	}
	old, now := testpki.Bundle(names[:150]...), testpki.Bundle(names...)
	c, s, _ := recorded(t, map[string][]byte{"etc/kubernetes/ca.crt": old})
	if err := c.Commit(context.Background(), writes(plan.KubeAPIServerServingCAData, "", string(now))); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for line := range strings.Lines(s.log.String()) {
		if len(line) > 10<<10 || !strings.HasPrefix(line, "<5>writer writes: field=\"kubeAPIServerServingCAData\" ") {
			t.Errorf("a line of %d bytes: %.80q", len(line), line)
		}
		for _, fp := range regexp.MustCompile(`[ ,=]([0-9a-f]{64})`).FindAllStringSubmatch(line[strings.Index(line,
			" added="):], -1) {
			found[fp[1]]++
		}
	}
	for _, fp := range append(fingerprints(old), fingerprints(now)...) {
		if found[fp] != 1 && !t.Failed() {
			t.Errorf("%s is recorded %d times", fp, found[fp])
		}
	}
}

func TestOnlyTheDigestsOfAPullSecretAreRecorded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pull.json"), []byte(`{"auths":{"old":{"auth":"b2xkOnNlY3JldA=="}}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	tree, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	spec := plan.FileSpec{Field: plan.InternalRegistryPullSecret, Path: "/pull.json", Mode: 0o600, UID: -1, GID: -1}
	s := serve(t, New([]plan.FileSpec{spec}, tree, validateEntry))
	now := `{"auths":{"new":{"auth":"bmV3OnNlY3JldA=="}}}` + "\n"
	if err := Dial(s.socket).Commit(context.Background(), writes(spec.Field, "", now)); err != nil {
		t.Fatal(err)
	}
	if got := s.log.String(); !strings.Contains(got,
		" after="+plan.DigestOf([]byte(now)).String()+" added=none removed=none ") ||
		strings.Contains(got, "auth") || strings.Contains(got, "b2xkOnNlY3JldA==") {
		t.Errorf("recorded %q", got)
	}
}

func TestSweptFilesAreRecorded(t *testing.T) {
	c, s, dir := recorded(t, nil)
	if err := os.WriteFile(filepath.Join(dir, "etc/kubernetes/.ca.crt123"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := s.log.String(); !strings.HasPrefix(got, "<5>writer swept: path=\"/etc/kubernetes/.ca.crt123\" uid=") {
		t.Errorf("recorded %q", got)
	}
}

func TestEachHandOutAndConsumptionOfACredentialIsRecorded(t *testing.T) {
	dir := t.TempDir()
	where := filepath.Join(dir, bootstrapDir)
	if err := os.MkdirAll(where, 0o700); err != nil {
		t.Fatal(err)
	}
	const content = "SECRET-TOKEN"
	if err := os.WriteFile(filepath.Join(where, "a.kubeconfig"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	tree, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, New(nil, tree, validateEntry).WithCredentials(Delete, false))
	c := Dial(s.socket)
	ctx := context.Background()
	if _, err := c.Bootstrap(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Consume(ctx, plan.DigestOf([]byte(content))); err != nil {
		t.Fatal(err)
	}
	peer := fmt.Sprintf(" uid=%d pid=%d\n", os.Geteuid(), os.Getpid())
	what := fmt.Sprintf("credential=%q digest=%s", "a.kubeconfig", plan.DigestOf([]byte(content)))
	want := "<5>writer hands out: " + what + peer + "<5>writer consumes: " + what + " how=\"delete\"" + peer
	if s.log.String() != want {
		t.Errorf("recorded\n%swant\n%s", s.log, want)
	}
}

func TestAFloodOfChangesIsHeldBackAndSaid(t *testing.T) {
	now := testpki.Bundle("a")
	c, s, _ := recorded(t, map[string][]byte{"etc/kubernetes/ca.crt": now})
	ctx := context.Background()
	var removals plan.Commit
	for i := range batch {
		// Of files that are not there: nothing is done, and a line said for each.
		k := key(plan.ImageRegistryBundleData, fmt.Sprint("r", i))
		removals.Removals = append(removals.Removals, plan.CommitRemoval{Key: k, Digest: plan.DigestOf(now)})
	}
	var err error
	n := 0
	for ; err == nil && n < 2*burst/batch; n++ {
		err = c.Commit(ctx, removals)
	}
	if kind(err) != failed || n < burst/(batch+1) {
		t.Fatalf("after %d commits of %d files: %v", n, batch, err)
	}
	if got := s.log.String(); strings.Count(got, "\n") > burst+1 || !strings.Contains(got,
		"<4>writer refused a request: ") {
		t.Errorf("%d lines are recorded, and the last is %q", strings.Count(got, "\n"), got[len(got)-200:])
	}
	if _, err := c.Observe(ctx, []plan.Query{{Key: key(plan.KubeAPIServerServingCAData, "")}}); err != nil {
		t.Errorf("a look: %v", err)
	}
}

func TestALogThatIsGoneStopsNothing(t *testing.T) {
	local, dir := newLocal(t)
	socket := filepath.Join(t.TempDir(), "s")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	ln := listen(t, socket)
	go func() { done <- Serve(ctx, ln, always(local), everyone, w) }()
	if err := Dial(socket).Commit(ctx, writes(plan.KubeAPIServerServingCAData, "", "valid, new")); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := readTree(t, dir)["etc/kubernetes/ca.crt"]; got != "valid, new" {
		t.Errorf("the file holds %q", got)
	}
}

func TestTheLinesOfTheWriterAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit-records.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"writer writes:", "writer removes:", "writer stopped:", "writer swept:",
		"writer hands out:",
		"writer consumes:", "writer refused ...:", "writer lost lines of this log:"} {
		if !strings.Contains(string(page), "| `"+line+"` |") {
			t.Errorf("docs/audit-records.md does not explain %q", line)
		}
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "journalctl ") && !strings.Contains(line, "_SYSTEMD_UNIT=") {
			t.Errorf("docs/audit-records.md shows what anybody may have sent: %s", line)
		}
	}
}
