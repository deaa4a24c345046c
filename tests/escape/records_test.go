// SPDX-License-Identifier: Apache-2.0

//go:build real

package escape

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const (
	writerUnit   = "node-cert-agent-writer.service"
	reloaderUnit = "node-cert-agent-reloader.service"
	reloaderSock = "/run/node-cert-agent-reloader.sock"
	writerSock   = "/run/node-cert-agent-writer.sock"
	forged       = "forged-by-the-agent"
	harmless     = "harmless.example"
)

func TestAllThatACompromisedAgentDoesIsRecorded(t *testing.T) { accuse(t, host.Same) }

func TestAllThatACompromisedAgentDoesIsRecordedUnderANewerSystemd(t *testing.T) {
	accuse(t, host.Newer)
}

// accuse has an agent do what it may, in the hope that nobody sees it, and asks the journal.
func accuse(t *testing.T, r host.Release) {
	t.Parallel()
	l := kubeadm
	l.files = map[string]host.File{
		"/etc/node-cert-agent/bootstrap.d/token.kubeconfig": private("a token"),
		// A journal that drops what a unit says beyond some lines.
		"/etc/systemd/journald.conf.d/50-limit.conf": {Data: []byte("[Journal]\nRateLimitIntervalSec=1h\nRateLimitBurst=100\n")},
	}
	n := boot(t, l, r)
	kib := func(field, unit string) int {
		t.Helper()
		size, err := strconv.Atoi(n.sh("awk '/^" + field + ":/ {print $2}' /proc/$(systemctl show -P MainPID " + unit +
			")/status"))
		n.Must(err)
		return size
	}
	n.sh("systemctl start kubelet.service reader.service " + writerUnit + " " + reloaderUnit)
	rest := map[string]int{writerUnit: kib("VmRSS", writerUnit), reloaderUnit: kib("VmRSS", reloaderUnit)}

	good, evil, again := testpki.NewCA("the cluster's"), testpki.NewCA("mine"), testpki.NewCA("mine again")
	all := unseen(good, evil, again)
	n.give(all)
	n.sh("systemctl start node-cert-agent.service")
	for unit, before := range rest {
		peak := kib("VmHWM", unit)
		t.Logf("%s: %d KiB at rest, %d KiB at most", unit, before, peak)
		if peak-before > 32<<10 {
			t.Errorf("hostile frames made %s grow by %d KiB", unit, peak-before)
		}
	}
	outcomes := map[string]outcome{}
	for _, o := range n.compare(all) {
		outcomes[o.Name] = o
	}
	n.sh("journalctl --sync")
	wantRecords(t, n.sh("journalctl -q --no-pager -o cat _SYSTEMD_UNIT="+writerUnit), good, evil, again, outcomes)
	reloads(t, n.sh("journalctl -q --no-pager -o cat _SYSTEMD_UNIT="+reloaderUnit), n.sh("wc -l </run/reader.reloaded"),
		outcomes)
	if claims := n.sh("journalctl -q --no-pager -o cat | grep -c " + forged); claims == "0" {
		t.Error("the forged records did not reach the journal at all")
	}
}

// unseen publishes a CA and takes it back, after it has said the same of others, and flooded the log; and then acts.
func unseen(good, evil, again []byte) []attempt {
	const kubelet, registry = "kubeAPIServerServingCAData", "imageRegistryBundleData"
	forge := "MESSAGE=writer writes: " + forged + "\nPRIORITY=5\nSYSLOG_IDENTIFIER=node-cert-agent\n_SYSTEMD_UNIT=" +
		writerUnit +
		"\nUNIT=" + writerUnit + "\nOBJECT_SYSTEMD_UNIT=" + writerUnit + "\n"
	removal := removal("", registry, harmless, evil).Args[0]
	out := []attempt{
		{Name: "forge a record", Do: "journal", Args: []string{forge}},
		{Name: "say a record", Do: "say", Args: []string{"<5>writer writes: " + forged}},
		commit("the cluster's CA", write(kubelet, ""), string(good)),
		commit("a CA of its own", write(kubelet, ""), string(good)+string(evil)),
		{Name: "flood the log", Do: "repeat", Args: []string{writerSock, "300", removal}},
		{Name: "flood it with refusals", Do: "repeat", Args: []string{writerSock, "300", `{"no":1}`}},
		commit("another CA", write(registry, "unseen.example"), string(again)),
		commit("the old bytes", write(kubelet, ""), string(good)),
		{Name: "take the bootstrap file", Do: "writer", Args: []string{`{"bootstrap":true}`}},
		{Name: "reload again and again", Do: "repeat", Args: []string{reloaderSock, "300", act("reader.service")}},
		many("large bundles", 20, testpki.Bundle(strings.Fields(strings.Repeat("ca ", 480))...)),
		{Name: "hostile frames for the writer", Do: "flood", Args: []string{writerSock, "4"}},
		{Name: "hostile frames for the reloader", Do: "flood", Args: []string{reloaderSock, "64"}},
	}
	for i := range out {
		out[i].Allowed = true
	}
	return out
}

// many publishes the same bundle for many registries at once.
func many(name string, n int, bundle []byte) attempt {
	var writes []map[string]any
	var contents []string
	for i := range n {
		writes = append(writes, write("imageRegistryBundleData", fmt.Sprintf("r%d.example", i))...)
		contents = append(contents, string(bundle))
	}
	return commit(name, writes, contents...)
}

// wantRecords checks what the writer says.
func wantRecords(t *testing.T, said string, good, evil, again []byte, outcomes map[string]outcome) {
	t.Helper()
	digest := func(b []byte) string { return plan.DigestOf(b).String() }
	prints := func(b []byte) string { return pki.Read(b).Certs[0].Fingerprint.String() }
	both := append(append([]byte{}, good...), evil...)
	const kubelet = `field="kubeAPIServerServingCAData" entry="" path="/etc/kubernetes/kubelet-ca.crt"`
	rest := said
	for _, want := range []string{
		fmt.Sprintf("writer writes: %s before=none after=%s added=%s removed=none uid=", kubelet, digest(good), prints(good)),
		fmt.Sprintf("writer writes: %s before=%s after=%s added=%s removed=none uid=", kubelet, digest(good), digest(both),
			prints(evil)),
		fmt.Sprintf(`writer writes: field="imageRegistryBundleData" entry="unseen.example" path="/etc/docker/certs.d/unseen.example/ca.crt" before=none after=%s added=%s`,
			digest(again), prints(again)),
		fmt.Sprintf("writer writes: %s before=%s after=%s added=none removed=%s uid=", kubelet, digest(both), digest(good),
			prints(evil)),
		`writer hands out: credential="token.kubeconfig" digest=` + digest([]byte("a token")),
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Errorf("the writer does not say, in its turn: %s", want)
			continue
		}
		rest = after
	}
	done, _, _ := strings.Cut(outcomes["flood the log"].Said, " ")
	if n := strings.Count(said, "entry=\""+harmless+"\""); strconv.Itoa(n) != done || n != 300 {
		t.Errorf("of %s harmless commits %d are in the journal", done, n)
	}
	if n := strings.Count(said, "writer refused a request"); n < 100 || n > 300 {
		t.Errorf("of the refusals %d are recorded", n)
	}
	if strings.Contains(said, forged) {
		t.Error("a forged record is among those of the writer")
	}
}

// reloads compares what the reloader says with what the unit did and what the agent was told.
func reloads(t *testing.T, said, ran string, outcomes map[string]outcome) {
	t.Helper()
	var done, seconds int
	if _, err := fmt.Sscan(outcomes["reload again and again"].Said, &done, &seconds); err != nil {
		t.Fatalf("%q: %v", outcomes["reload again and again"].Said, err)
	}
	if limit := 5 + seconds + 1; done < 1 || done > limit {
		t.Errorf("%d reloads in %d seconds, want 1 to %d", done, seconds, limit)
	}
	for _, line := range []string{"reloader begins: ", "reloader done: "} {
		if n := strings.Count(said, line+`unit="reader.service" verb=reload`); n != done || ran != strconv.Itoa(done) {
			t.Errorf("%d times %q is recorded; the unit was reloaded %s times, and the agent was told %d", n, line, ran, done)
		}
	}
	if strings.Contains(said, forged) {
		t.Error("a forged record is among those of the reloader")
	}
}
