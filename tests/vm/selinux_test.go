// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// With SELinux, and without it for the one boot that labels the disk: the labels of the policy can be set by a
// kernel that has it loaded.
const (
	enforcing = "security=selinux selinux=1 enforcing=1"
	labelling = "security=selinux selinux=1 enforcing=0 init=/etc/label"
)

// underSELinux is a host with a policy, a unit on the allowlist that copies what it loads, and the rebuild of the
// trust store.
var underSELinux = map[string]host.File{
	"/etc/selinux/config": {Data: []byte("SELINUX=enforcing\nSELINUXTYPE=default\n")},
	"/etc/label": {Mode: 0o755, Data: []byte(`#!/bin/sh
mount -t proc proc /proc
load_policy -i
setfiles -F -e /proc -e /sys -e /dev -e /run /etc/selinux/default/contexts/files/file_contexts / && echo labelled
reboot -f
`)},
	"/root/50-site.yaml": {Data: []byte(site + `files:
  kubeAPIServerServingCAData: {onChange: [reader.service]}
  additionalTrustBundle: {onChange: [node-cert-agent-update-ca-trust.service]}
units:
  reader.service: {verb: reload}
  node-cert-agent-update-ca-trust.service: {verb: restart}
actions: {batchWindow: 200ms, randomizedDelay: 0s}
`)},
	"/etc/systemd/system/reader.service": {Data: []byte(`[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecReload=/bin/cp ` + kubeletCA + ` /run/reader

[Install]
WantedBy=multi-user.target
`)},
}

// labelledDisk is a disk with the labels of the policy.
func labelledDisk(t *testing.T, v versions) image {
	t.Helper()
	i := disk(t, v.onDisk(), underSELinux, map[string]host.File{debPath: pack(t)})
	m, err := i.start(labelling)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.cut() })
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	if err := m.off(ctx); err != nil {
		t.Fatal(err)
	}
	if said := m.said(); !strings.Contains(said, "\nlabelled") {
		t.Fatalf("the disk got no labels; the console ends with\n%s", said)
	}
	return i
}

func TestUnderSELinuxEverythingWorksAndNothingIsDenied(t *testing.T) {
	v := newVersions(8)
	i := labelledDisk(t, v)
	g := boot(t, i, enforcing).also(v)
	g.want("getenforce", "Enforcing")
	// With all of Debian's CAs the rebuild takes longer than its unit has, emulated.
	g.must(`rm /etc/ssl/certs/*; : >/etc/ca-certificates.conf
dpkg -i ` + debPath + ` && cp /root/50-site.yaml /etc/node-cert-agent/config.d/
systemctl enable --now reader.service ` + service)
	g.applied(0)
	g.applied(1)
	// What another program moves into place brings a label along, which the next rotation does not take over.
	g.must("cp " + kubeletCA + " /root/ca && mv /root/ca " + kubeletCA)
	if said := g.checks(); !strings.Contains(said, "warn  SELinux: "+kubeletCA+" is ") {
		t.Errorf("check says %q of a file that was moved there", said)
	}
	g.applied(2)
	g.powerOff()

	g = boot(t, i, enforcing).also(v)
	g.want("systemctl is-active "+service, "active")
	g.labels(2)
	g.applied(3)
	for p := range strings.FieldsSeq(g.must("pidof node-cert-agent")) {
		t.Log(g.must("tr '\\0' ' ' </proc/" + p + "/cmdline; cat /proc/" + p + "/attr/current"))
	}
	g.nothingDenied()
	g.powerOff()
}

// applied applies a version: its files come, its units load them, the version before goes, and check is content.
func (g *guest) applied(n int) {
	g.t.Helper()
	g.want(fmt.Sprintf("node-cert-agent apply --now -f /root/versions/%d.json | tail -n 1", n), "applied")
	g.labels(n)
	g.must("cmp /run/reader " + kubeletCA)
	g.must(fmt.Sprintf("grep -qF \"$(sed -n 2p /root/versions/%d.crt)\" /etc/ssl/certs/ca-certificates.crt", n))
	g.want("ls "+certsD+" | grep -c ^own", "1")
	said := g.checks()
	for _, line := range []string{fmt.Sprintf("ok    SELinux: %d managed files labelled as the directory",
		len(g.versions.files(n))),
		"ok    writer: ", "ok    reloader: ", "ok    unit: reload reader.service"} {
		if !strings.Contains(said, "\n"+line) {
			g.t.Errorf("check does not say %q:\n%s", line, said)
		}
	}
}

// checks is what `check` says. It also fails, since the host has no identity.
func (g *guest) checks() string {
	g.t.Helper()
	said, _ := g.says("node-cert-agent check")
	return said
}

// labels compares the type of each file of a version with that of its directory.
func (g *guest) labels(n int) {
	g.t.Helper()
	types := map[string]string{}
	for line := range strings.Lines(g.must("find " + strings.Join(managed, " ") + " -printf '%p %Z\\n'")) {
		name, label, _ := strings.Cut(strings.TrimSpace(line), " ")
		types[name] = strings.Split(label+"::", ":")[2]
	}
	files := g.versions.files(n)
	for name := range files {
		if is, dir := types[name], types[path.Dir(name)]; is == "" || is != dir {
			g.t.Errorf("%s has the type %q, and its directory %q", name, is, dir)
		}
	}
}

// denied are the denials that name us or come from where systemd's services run in this policy, ours among them,
// of all boots.
const denied = `journalctl -o cat --no-pager | grep -a denied | grep -a -e ert-agent -e scontext=system_u:system_r:initrc_t`

// control is a denial, of a getty that would run our program.
var control = regexp.MustCompile(`denied +{ entrypoint } .*comm="runcon" path="/usr/bin/node-cert-agent"`)

// harmless is what NoNewPrivileges= denies where Debian's script calls restorecon: a domain of its own. It then runs in
// the one of the script, as in any sandbox.
var harmless = regexp.MustCompile(`denied +{ nnp_transition } .*comm="update-ca-certi" .*:setfiles_t:`)

// nothingDenied looks for denials up to one that it provokes itself: then those before it are in the journal too.
func (g *guest) nothingDenied() {
	g.t.Helper()
	if _, status := g.says("runcon system_u:system_r:getty_t:s0 /usr/bin/node-cert-agent version"); status == 0 {
		g.t.Error("SELinux enforces nothing")
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range 60 {
		said, _ := g.says(denied)
		if !control.MatchString(said) {
			<-tick.C
			continue
		}
		for line := range strings.Lines(said) {
			if !control.MatchString(line) && !harmless.MatchString(line) {
				g.t.Errorf("SELinux says %s", line)
			}
		}
		return
	}
	g.t.Error("the journal has no denials, not even that which was provoked")
}
