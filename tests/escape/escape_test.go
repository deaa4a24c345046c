// SPDX-License-Identifier: Apache-2.0

//go:build real

package escape

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testnode"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// secret is in every file that the agent must not see.
const secret = "SECRET-OF-THE-HOST"

// attempt is what prisoner is given. Allowed says how it shall end.
type attempt struct {
	Name, Do string
	Args     []string
	Allowed  bool `json:"-"`
}

type outcome struct {
	Name, Error, Said string
}

// layout is a host of one kind of cluster.
type layout struct {
	profile string
	// files are the host's own; what ends in a key, a kubeconfig or a token holds secret.
	files map[string]host.File
	// closed are fields that the profile has switched off.
	closed []plan.Field
	// own are the attempts that only make sense here.
	own []attempt
}

func private(text string) host.File { return host.File{Data: []byte(text), Mode: 0o600} }

func kubeconfig() host.File {
	return private(string(kubeconfigs.Token("https://api-int.example:6443", testpki.NewCA("kubeconfig"), secret)))
}

var openshift = layout{
	profile: "openshift",
	files: map[string]host.File{
		"/etc/kubernetes/kubeconfig":                            kubeconfig(),
		"/var/lib/kubelet/kubeconfig":                           kubeconfig(),
		"/var/lib/kubelet/config.json":                          private(secret),
		"/var/lib/kubelet/pki/kubelet-client-current.pem":       private(secret),
		"/etc/kubernetes/kubelet.conf":                          {Data: []byte("kind: KubeletConfiguration")},
		"/etc/kubernetes/cloud.conf":                            private(secret),
		"/etc/kubernetes/kubelet-plugins/volume/exec/flex/flex": {Data: []byte("#!/bin/sh"), Mode: 0o755},
		"/etc/kubernetes/manifests/kube-apiserver-pod.yaml":     private("kind: Pod"),
		"/etc/mco/internal-registry-pull-secret.json":           private(`{"auths":{}}`),
		"/etc/machine-config-daemon/currentconfig":              private(secret),
	},
	closed: []plan.Field{plan.RootCAData, plan.AdditionalTrustBundle},
}

var kubeadm = layout{
	profile: "kubeadm",
	files: map[string]host.File{
		"/etc/kubernetes/admin.conf":                        kubeconfig(),
		"/etc/kubernetes/kubelet.conf":                      kubeconfig(),
		"/etc/kubernetes/pki/ca.crt":                        {Data: testpki.NewCA("cluster")},
		"/etc/kubernetes/pki/ca.key":                        private(secret),
		"/etc/kubernetes/manifests/kube-apiserver.yaml":     private("kind: Pod"),
		"/var/lib/kubelet/config.yaml":                      {Data: []byte("kind: KubeletConfiguration")},
		"/var/lib/kubelet/kubeadm-flags.env":                {Data: []byte("KUBELET_KUBEADM_ARGS=")},
		"/var/lib/kubelet/pki/kubelet-client-current.pem":   private(secret),
		"/etc/kubernetes/kubelet-plugins/volume/exec/x/x":   {Data: []byte("#!/bin/sh"), Mode: 0o755},
		"/etc/docker/certs.d/registry.example/client.cert":  {Data: []byte("certificate")},
		"/usr/local/share/ca-certificates/site-own.crt":     {Data: testpki.NewCA("site")},
		"/etc/default/kubelet":                              {Data: []byte("KUBELET_EXTRA_ARGS=")},
		"/etc/systemd/system/kubelet.service.d/kubeadm.env": {Data: []byte("X=")},
	},
	closed: []plan.Field{plan.CloudProviderCAData, plan.KubeconfigCAData, plan.InternalRegistryPullSecret},
}

// services are units of root's: one on the allowlist, the others not, and sockets that are not for us.
var services = map[string]string{
	"reader.service": "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/sh -c " +
		"'echo reloaded >>/run/reader.reloaded'\n",
	"kubelet.service": "[Service]\nExecStart=/bin/sleep " +
		"infinity\nExecReload=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
	"victim.service": "[Service]\nExecStart=/bin/sleep infinity\n",
	// Jobs that wait for one that does not end: of others, and of an allowlisted unit.
	"hold.service":    "[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\n",
	"blocked.service": "[Unit]\nAfter=hold.service\n[Service]\nExecStart=/bin/sleep infinity\n",
	"waiting.service": "[Unit]\nAfter=hold.service\n[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n",
	// What answers on the network.
	"web.socket":  "[Socket]\nListenStream=0.0.0.0:80\n",
	"web.service": "[Service]\nExecStart=/bin/sleep infinity\n",
	// As open as can be, so that only the sandbox is between.
	"containerd.socket": "[Socket]\nListenStream=/run/containerd/containerd.sock\nListenStream=/run/crio/crio.sock\nSocketMode=0666\nService=victim.service\n[Install]\nWantedBy=sockets.target\n",
	"private.socket":    "[Socket]\nListenStream=/run/private.sock\nSocketMode=0600\nSocketUser=daemon\nService=victim.service\n[Install]\nWantedBy=sockets.target\n",
}

func TestACompromisedAgentOnOpenShift(t *testing.T) { imprison(t, openshift, host.Same) }

func TestACompromisedAgentOnKubeadm(t *testing.T) { imprison(t, kubeadm, host.Same) }

func TestACompromisedAgentUnderANewerSystemd(t *testing.T) { imprison(t, openshift, host.Newer) }

func imprison(t *testing.T, l layout, r host.Release) {
	t.Parallel()
	n := boot(t, l, r)
	n.sh("systemctl start kubelet.service reader.service web.socket web.service node-cert-agent-writer.service && mkdir " +
		"-p /run/systemd/transient /run/udev/rules.d")
	n.sh("systemctl start --no-block hold.service blocked.service waiting.service")
	// Others reach it, so that it is the agent's unit that does not.
	n.Must(n.Host.Own([4]byte{169, 254, 169, 254}))
	conn, err := n.Host.Dial(n.Ctx, "169.254.169.254:80")
	n.Must(err)
	_ = conn.Close()
	n.sh("until systemctl list-jobs --no-legend | grep -q 'hold.service *start running'; do :; done")
	jobs := n.sh("systemctl list-jobs --no-legend --no-pager | sort")
	pid := func(unit string) string { return n.sh("systemctl show -P MainPID " + unit) }
	good, spent := testpki.NewCA("published by a compromised agent"), testpki.NewCA("published and removed")
	all := slices.Concat(l.onFiles(), sockets, processes(pid), bus(), actions(), network, l.requests(good, spent), l.own)
	n.give(all)
	before := n.snapshot()
	n.sh("systemctl start node-cert-agent.service")

	n.compare(all)
	after := n.snapshot()
	changed := map[string]string{}
	for p := range maps.Keys(after) {
		if after[p] != before[p] {
			changed[p] = after[p]
		}
	}
	for p := range before {
		if after[p] == "" {
			changed[p] = "gone"
		}
	}
	for _, p := range []string{"/etc/kubernetes/kubelet-ca.crt", "/etc/docker/certs.d/good.example:5000",
		"/etc/docker/certs.d/good.example:5000/ca.crt"} {
		if changed[p] == "" {
			t.Errorf("%s was not published, which a compromised agent may", p)
		}
		delete(changed, p)
	}
	delete(changed, "/etc/docker/certs.d") // its time changed with what is in it
	delete(changed, "/etc/kubernetes")
	for p, what := range changed {
		t.Errorf("%s has changed: %s", p, what)
	}
	if got := n.sh("systemctl is-active kubelet.service reader.service dbus.service node-cert-agent-writer.service; cat " +
		"/run/reader.reloaded"); got != "active\nactive\nactive\nactive\nreloaded" {
		t.Errorf("afterwards: %q", got)
	}
	if now := n.sh("systemctl list-jobs --no-legend --no-pager | sort"); now != jobs || jobs == "" {
		t.Errorf("the jobs of others were\n%s\nand are\n%s", jobs, now)
	}
}

// node is a host with prisoner in the agent's place.
type node struct{ *testnode.Node }

// sh runs a command of the shell on the host as root.
func (n *node) sh(command string) string {
	n.T.Helper()
	return n.Run("sh", "-c", command)
}

// give leaves prisoner what it is to try when it starts.
func (n *node) give(all []attempt) {
	n.T.Helper()
	list, err := json.Marshal(all)
	n.Must(err)
	n.Must(n.Host.PutFile("/etc/attempts.json", host.File{Data: list}))
}

// boot has prisoner in the agent's place and everything else as installed.
func boot(t *testing.T, l layout, r host.Release) *node {
	t.Helper()
	install := t.TempDir()
	must.Do(t, cluster.Build(t.Context(), filepath.Join(install, "usr/bin/node-cert-agent")))
	build := exec.Command("go", "build", "-o", filepath.Join(install, "usr/bin/prisoner"),
		"./testdata/prisoner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files := map[string]host.File{
		"/etc/node-cert-agent/config.d/50-site.yaml": {Data: []byte("apiVersion: " +
			"config.node-cert-agent.io/v1alpha1\nprofile: " + l.profile +
			"\nfiles:\n  kubeAPIServerServingCAData: {path: /etc/kubernetes/kubelet-ca.crt, onChange: [reader.service]}\nunits:\n  reader.service: {verb: reload}\n  " +
			"waiting.service: {verb: reload}\n")},
		"/etc/node-cert-agent/bootstrap.d/x.note": private(secret),
		"/root/.ssh/id_ecdsa":                     private(secret),
		// Folders that a test host lacks and others have.
		"/etc/sudoers.d/README": {}, "/etc/udev/rules.d/README": {}, "/etc/cron.d/README": {},
		"/usr/lib/node-cert-agent/config.d/README": {}, "/etc/kubernetes/kubelet-plugins/volume/exec/escape~x/README": {},
		"/etc/docker/certs.d/registry.example/ca.crt":     {Data: testpki.NewCA("registry")},
		"/etc/docker/certs.d/registry.example/client.key": private(secret),
		"/etc/systemd/system/node-cert-agent.service.d/prisoner.conf": {Data: []byte("[Service]\nExecStart=\nExecStart=/usr/bin/prisoner /etc/attempts.json\n" +
			// it is ready when all is tried
			"ExecPaths=/usr/bin/prisoner\nBindReadOnlyPaths=/usr/bin/prisoner\nRestart=no\nTimeoutStartSec=240\n")},
	}
	if l.profile == "openshift" {
		dropin, err := os.ReadFile("../../packaging/openshift/writer.conf")
		must.Do(t, err)
		files["/etc/systemd/system/node-cert-agent-writer.service.d/50-openshift.conf"] = host.File{Data: dropin}
	}
	for name, text := range services {
		files["/etc/systemd/system/"+name] = host.File{Data: []byte(text)}
	}
	maps.Copy(files, l.files)
	return &node{testnode.Boot(t, host.Options{Release: r, Trees: []string{"../../systemd", "../../deb/tree", install},
		Files: files, Enable: []string{"containerd.socket", "private.socket"}})}
}

// compare reads how the attempts ended.
func (n *node) compare(all []attempt) (outcomes []outcome) {
	t := n.T
	t.Helper()
	data := n.File("/run/node-cert-agent/attempts.json")
	if err := json.Unmarshal(data, &outcomes); err != nil || len(outcomes) != len(all) {
		t.Fatalf("%d outcomes of %d attempts: %v", len(outcomes), len(all), err)
	}
	allowed := 0
	for i, o := range outcomes {
		a := all[i]
		if a.Allowed {
			allowed++
		}
		switch {
		case a.Allowed && o.Error != "":
			t.Errorf("%s: refused, which it should not be: %s", a.Name, o.Error)
		case !a.Allowed && o.Error == "":
			t.Errorf("%s: allowed (%.200s)", a.Name, o.Said)
		case strings.HasSuffix(o.Error, "no such file or directory") && !hidden(a):
			t.Errorf("%s: there is nothing to try it on", a.Name)
		case strings.Contains(o.Said, secret) || strings.Contains(o.Error, secret):
			t.Errorf("%s: a secret was answered", a.Name)
		}
		t.Logf("%-60s %.150s", a.Name, o.Error)
	}
	t.Logf("%d attempts, %d of them allowed", len(all), allowed)
	return outcomes
}

// hidden tells what the sandbox makes disappear.
func hidden(a attempt) bool {
	return len(a.Args) > 0 && (strings.HasPrefix(a.Args[0], "/proc/") || strings.HasPrefix(a.Args[0], "/dev/"))
}

// snapshot is every file of the host but those that change by themselves, with mode, owner, content or
// target of a link, and the time of its last change.
func (n *node) snapshot() map[string]string {
	n.T.Helper()
	out, err := n.Host.Run(n.Ctx, "sh", "-c", `find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /dev -o -path /var/log/journal -o -path /var/tmp \
		-o -path /var/lib/systemd -o -path /var/lib/private -o -path /var/lib/node-cert-agent -o -path /var/lib/polkit-1 \) -prune -o -printf '%p\t%y %m %U %G %C@ %l\n'`)
	n.Must(err)
	all := map[string]string{}
	for line := range strings.Lines(out) {
		name, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		all[name] = rest
	}
	if len(all) < 1000 {
		n.T.Fatalf("the snapshot holds %d files", len(all))
	}
	// The directory of state was made by systemd, and so changed its parent.
	delete(all, "/var/lib")
	return all
}
