// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

const (
	cuts        = 20
	controlCuts = 3
)

// site takes everything that the object drops away at once.
const site = `apiVersion: config.node-cert-agent.io/v1alpha1
trust: {holdRemovals: 0s, source: ""}
`

// managed are the directories with files of ours.
var managed = []string{"/etc/kubernetes", "/etc/docker/certs.d", "/usr/local/share/ca-certificates"}

// lean leaves out of a boot what is not needed to come up after a cut: there are enough of them.
var lean = "quiet systemd.show_status=0 systemd.mask=" + strings.Join([]string{"systemd-udevd.service",
	"systemd-udev-trigger.service",
	"systemd-logind.service", "systemd-user-sessions.service", "modprobe@configfs.service", "modprobe@dm_mod.service",
	"modprobe@drm.service",
	"modprobe@efi_pstore.service", "modprobe@fuse.service", "modprobe@loop.service", "dev-hugepages.mount",
	"dev-mqueue.mount",
	"sys-kernel-debug.mount", "sys-kernel-tracing.mount"}, " systemd.mask=")

// rotation is what the guest says of its rotations.
type rotation struct {
	acknowledged, begun int // versions
	began               time.Time
	took                time.Duration // the last that ended
}

// take understands a line; another one is the end of the rotations, and an error.
func (r *rotation) take(line string) error {
	var n int
	if _, err := fmt.Sscanf(line, "BEGIN %d", &n); err == nil {
		r.begun, r.began = n, time.Now()
		return nil
	}
	if _, err := fmt.Sscanf(line, "ACK %d", &n); err == nil {
		r.acknowledged, r.took = n, time.Since(r.began)
		return nil
	}
	return fmt.Errorf("the guest says %q", line)
}

// rotate has the guest rotate, one version after the other and each by a command with the version's files in $v,
// and cuts the power in the rotation after the given number of them, when that part of its time has passed.
func (g *guest) rotate(r *rotation, command string, acknowledgements int, part float64) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), bootLimit)
	defer cancel()
	err := g.send(fmt.Sprintf(`n=%d
while n=$((n + 1)); do
	v=/root/versions/$((n %% %d))
	echo "BEGIN $n"
	{ %s; } >/run/said 2>&1 || { tail -n 1 /run/said; exit 1; }
	echo "ACK $n"
done`, r.begun, len(g.versions), command))
	for last := r.acknowledged + acknowledgements; err == nil && (r.acknowledged < last || r.begun == r.acknowledged); {
		var line string
		if line, err = g.line(ctx); err == nil {
			err = r.take(line)
		}
	}
	if err != nil {
		g.t.Fatal(err)
	}
	moment := time.NewTimer(time.Duration(part * float64(r.took)))
	defer moment.Stop()
	for waiting := true; waiting; {
		select {
		case line := <-g.lines:
			err = r.take(line)
			waiting = err == nil
		case <-moment.C:
			waiting = false
		}
	}
	for _, line := range g.cut() {
		if err == nil {
			err = r.take(line)
		}
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// here is what the guest itself has in the managed directories.
func (g *guest) here() map[string][]byte {
	g.t.Helper()
	files := map[string][]byte{}
	for line := range strings.Lines(g.must("find " + strings.Join(managed, " ") +
		` -type f | while read -r f; do echo "$f $(base64 -w0 "$f")"; done`)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			g.t.Fatalf("%s: %v", line, err)
		}
		files[name] = data
	}
	return files
}

// recovered looks at a guest that has come up after a cut: without help the agent made one version of what it
// found, swept, and goes on.
func (g *guest) recovered(r *rotation) {
	g.t.Helper()
	// On a busy machine the emulated one may need more time than the unit's start has; systemd tries again.
	g.must("until systemctl is-active --quiet " + service + "; do sleep 1; done")
	files := g.here()
	wrong, mixed, leftovers := judge(files, g.versions.files, r.acknowledged, r.begun)
	if len(wrong) > 0 || mixed || leftovers > 0 {
		g.t.Errorf("after the next start: %d leftovers, two versions beside each other: %v, %s", leftovers, mixed,
			strings.Join(wrong, "\n"))
	}
	if bytes.Equal(files[rootCA], g.versions.ca(r.begun)) {
		r.acknowledged = r.begun
	}
	r.begun = r.acknowledged
}

// tally counts what the cuts met.
type tally struct {
	older, mixed, newer  int // than what was on its way: not begun, in the middle, done
	leftovers, setAside  int
	acknowledged, rounds int
}

func TestAfterTwentyPowerCutsEveryFileIsWholeAndNotOlderThanWasSaid(t *testing.T) {
	v := newVersions(16)
	i := disk(t, v.onDisk(), map[string]host.File{debPath: pack(t), "/root/50-site.yaml": {Data: []byte(site)}})
	g := boot(t, i, lean)
	g.must(`dpkg -i ` + debPath + ` && cp /root/50-site.yaml /etc/node-cert-agent/config.d/
systemctl enable --now ` + service + ` && node-cert-agent apply --now -f /root/versions/0.json`)
	g.powerOff()

	var r rotation
	var n tally
	for range cuts {
		n.rounds++
		g := boot(t, i, lean).also(v)
		g.recovered(&r)
		from := r.acknowledged
		// Once through the whole of a rotation.
		g.rotate(&r, "node-cert-agent apply --now -f $v.json", 1+n.rounds%2, (float64(n.rounds)-0.5)/cuts)
		n.acknowledged += r.acknowledged - from
		n.look(t, i, v, r)
		t.Logf("cut %d: version %d acknowledged, %d begun: %+v", n.rounds, r.acknowledged, r.begun, n)
		if t.Failed() {
			return
		}
	}
	boot(t, i, lean).also(v).recovered(&r)
	if n.mixed+n.newer == 0 || n.older == 0 {
		t.Errorf("the cuts did not reach all of a rotation: %+v", n)
	}
}

// look judges the disk after a cut.
func (n *tally) look(t *testing.T, i image, v versions, r rotation) {
	t.Helper()
	const memory = "/var/lib/node-cert-agent"
	found, err := i.read(t.Context(), filepath.Join(t.TempDir(), "found"), append(slices.Clone(managed), memory)...)
	if err != nil {
		t.Fatal(err)
	}
	for name := range found {
		if strings.HasSuffix(name, ".bad") {
			n.setAside++
		}
	}
	maps.DeleteFunc(found, func(name string, _ []byte) bool { return strings.HasPrefix(name, memory) })
	wrong, mixed, leftovers := judge(found, v.files, r.acknowledged, r.begun)
	for _, w := range wrong {
		t.Error(w)
	}
	n.leftovers += leftovers
	switch {
	case mixed:
		n.mixed++
	case r.begun > r.acknowledged && bytes.Equal(found[rootCA], v.ca(r.begun)):
		n.newer++
	default:
		n.older++
	}
}

// TestAWriterThatDoesNotSyncIsFoundOut is the control: the same versions, machine, cut and judge.
func TestAWriterThatDoesNotSyncIsFoundOut(t *testing.T) {
	v := newVersions(16)
	i := disk(t, v.onDisk())
	names := slices.Sorted(maps.Keys(v.fixed(0)))
	write := "for f in " + strings.Join(names, " ") + "; do cat $v.crt >$f; done"
	faults := 0
	for range controlCuts {
		g := boot(t, i, lean).also(v)
		g.must("for f in " + strings.Join(names, " ") + "; do mkdir -p ${f%/*}; done; v=/root/versions/0; " + write +
			"; sync")
		r := rotation{}
		g.rotate(&r, write, 3, 0.5)
		found, err := i.read(t.Context(), filepath.Join(t.TempDir(), "found"), managed...)
		if err != nil {
			t.Fatal(err)
		}
		wrong, _, _ := judge(found, v.fixed, r.acknowledged, r.begun)
		t.Logf("version %d acknowledged, %d begun: %d of %d files are wrong", r.acknowledged, r.begun, len(wrong), len(names))
		if len(wrong) > 0 {
			t.Log(wrong[0])
			faults++
		}
	}
	if faults == 0 {
		t.Errorf("none of %d cuts showed that nothing was synced", controlCuts)
	}
}
