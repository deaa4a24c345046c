// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const mounts = `1 0 8:1 / / rw,relatime - ext4 /dev/sda1 rw
2 1 8:1 / / ro,relatime - ext4 /dev/sda1 rw
3 2 8:1 /etc/kubernetes /etc/kubernetes rw,relatime - ext4 /dev/sda1 rw
4 2 8:1 /etc/docker/certs.d /etc/docker/certs.d rw,relatime shared:3 - ext4 /dev/sda1 rw
`

// good is a host on which all is well, which every case changes.
func good() Facts {
	f := Facts{Root: true, Now: now, Profile: "standalone", Sources: []string{"builtin:standalone.yaml",
		"/etc/node-cert-agent/config.d/50-site.yaml"}, SELinux: true}
	f.Policy.Units = []unitplan.Unit{{Name: "crio.service", Verb: unitplan.TryRestart,
		AlsoAffects: []string{"kubelet.service"}}}
	f.Policy.Files = []plan.FileSpec{
		{Field: plan.KubeAPIServerServingCAData, Path: "/etc/kubernetes/kubelet-ca.crt", OnChange: []string{"crio.service"}},
		{Field: plan.ImageRegistryBundleData, Path: "/etc/docker/certs.d/{name}/ca.crt"},
	}
	f.Node.Name = "worker-1"
	for _, dir := range []string{"/etc/kubernetes", "/etc/docker/certs.d"} {
		f.Directories = append(f.Directories, Directory{Path: dir, Real: dir, Mode: fs.ModeDir | 0o755,
			Label: "system_u:object_r:cert_t:s0"})
	}
	f.Files = []File{{Key: plan.Key{Field: plan.KubeAPIServerServingCAData}, Path: "/etc/kubernetes/kubelet-ca.crt",
		File: plan.File{Kind: plan.Regular}, Label: "system_u:object_r:cert_t:s0"}}
	f.Writer = writerFacts{Asked: true, Mounts: mounts}
	f.Reloader, f.Systemd = reloaderFacts{Asked: true}, "252.39-1~deb12u1"
	f.Units = []Unit{{Unit: f.Policy.Units[0], Exists: true, Own: "crio.service", Affected: []string{"kubelet.service"}}}
	f.Service = serviceFacts{Looked: true, Active: true, Published: true, State: "following", Renew: now.Add(time.Hour)}
	f.Unit = "[Service]\nIPAddressDeny=169.254.169.254 fd00:ec2::254\n"
	f.Resolvers = []netip.Addr{netip.MustParseAddr("10.0.0.10")}
	f.Identity = identityFacts{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(2 * time.Hour)}
	f.API = API{Asked: true, Server: "api:6443", Status: 201, User: "node-cert-agent:node:worker-1", MayAsk: true,
		Objects: []Object{{Kind: "ControllerConfig", Name: "controllerconfigs.x y", Status: 200}}}
	f.Clock = clockFacts{Server: now.Add(-time.Second), Built: now.Add(-24 * time.Hour), Newest: now.Add(-time.Hour)}
	return f
}

func text(f Finding) string {
	return fmt.Sprintf("%s  %s: %s; fix: %s", f.Level, f.What, f.Fact, f.Fix)
}

func TestAGoodHostIsAllOK(t *testing.T) {
	var whats []string
	for _, f := range Judge(good()) {
		if f.Level != OK || f.Fix != "" || f.Fact == "" {
			t.Error(text(f))
		}
		whats = append(whats, f.What)
	}
	want := []string{"configuration", "profile", "node name", "directory", "directory", "files", "SELinux", "writer",
		"reloader", "systemd",
		"allowlist", "unit", "service", "resolver", "identity", "API server", "renewal", "ControllerConfig", "clock"}
	if !slices.Equal(whats, want) {
		t.Errorf("looked at are %q\nwant %q", whats, want)
	}
}

func TestTheWorstThatACompromisedAgentCouldDoIsSaid(t *testing.T) {
	f := good()
	f.Units = append(f.Units, Unit{Unit: unitplan.Unit{Name: "b.service", Verb: unitplan.Reload}, Exists: true,
		Own: "b.service"}, Unit{Unit: unitplan.Unit{Name: "gone.service", Verb: unitplan.Reload}},
		Unit{Unit: unitplan.Unit{Name: "alias.service", Verb: unitplan.Reload}, Exists: true, Own: "other.service"},
		Unit{Unit: unitplan.Unit{Name: "wide.service", Verb: unitplan.TryRestart}, Exists: true, Own: "wide.service",
			Affected: []string{"kubelet.service"}})
	for sentence, c := range map[string]struct {
		units []Unit
		want  string
	}{
		"each unit that exists, with what goes along": {f.Units,
			"a compromised agent could act on: try-restart crio.service and with it kubelet.service; reload b.service"},
		"no unit": {nil, "a compromised agent could act on: no unit"},
	} {
		f.Units = c.units
		if !slices.ContainsFunc(Judge(f), func(f Finding) bool { return f.What == "allowlist" && f.Fact == c.want }) {
			t.Errorf("%s: no finding %q in %v", sentence, c.want, Judge(f))
		}
	}
}

const (
	cutOff = "warn  resolver: the service cannot reach the host's name server 169.254.169.254: IPAddressDeny= of its " +
		"unit denies it; fix: systemctl edit node-cert-agent.service, add [Service] and an empty IPAddressDeny=, then " +
		"systemctl restart node-cert-agent.service; or name the API server by its address"
	makeOurs = "systemd-tmpfiles --create node-cert-agent.conf"
	noteTime = "timedatectl timesync-status, or chronyc tracking"
	another  = "systemctl status node-cert-agent; with a file in /etc/node-cert-agent/bootstrap.d it gets another"
)

const renewFix = "renew it with the tool that made it; node-cert-agent renew says where it is, and who uses it"

// cases are what can be wrong, each with all findings that are not ok.
var cases = map[string]struct {
	change func(*Facts)
	want   []string
}{
	"an ordinary user looks": {func(f *Facts) {
		f.Root, f.Identity.Unseen, f.Writer, f.Reloader = false, true, writerFacts{}, reloaderFacts{}
		f.Systemd, f.Units = "", nil
	},
		[]string{"warn  user: not root: the writer, its files, the reloader, the units and the identity are not looked at; " +
			"fix: run it as root"}},
	"the machine config daemon and another profile": {func(f *Facts) { f.Host.MachineConfigDaemon = true },
		[]string{"warn  profile: standalone, and the machine config daemon manages this host: both may write the same " +
			"files; fix: set `profile: openshift`"}},
	"the profile openshift on another host": {func(f *Facts) { f.Profile = "openshift" },
		[]string{"warn  profile: openshift, and no machine config daemon has been on this host; fix: set `profile: " +
			"standalone`"}},
	"a node of kubeadm with the default profile": {func(f *Facts) { f.Host.Kubeadm = true },
		[]string{"warn  profile: standalone, and kubeadm made this node; fix: set `profile: kubeadm`"}},
	"the profile kubeadm on another host": {func(f *Facts) { f.Profile = "kubeadm" },
		[]string{"warn  profile: kubeadm, and kubeadm did not make this node; fix: set `profile: standalone`"}},
	"a control plane that ends": {func(f *Facts) {
		f.Pairs = &Pairs{Observed: f.Now, All: []Pair{{Name: "apiserver", NotAfter: f.Now.Add(-time.Hour), Expired: true},
			{Name: "etcd-peer", NotAfter: f.Now.Add(time.Hour), Expiring: true}, {Name: "a", Problem: "a.key does not exist"},
			{Name: "scheduler.conf", Stale: "it started before"}}}
	}, []string{
		"fail  control plane: apiserver ended at " + stamp(now.Add(-time.Hour)) + "; fix: " + renewFix,
		"warn  control plane: etcd-peer ends at " + stamp(now.Add(time.Hour)) + ", and nobody renews it; fix: " + renewFix,
		"fail  control plane: a: a.key does not exist; fix: see node-cert-agent renew",
		"warn  control plane: scheduler.conf: it started before; fix: start it again; a static pod by ending its process, which " +
			"the kubelet replaces"}},
	"a control plane that nobody looks at any more": {func(f *Facts) {
		f.Pairs = &Pairs{Observed: f.Now.Add(-26 * time.Hour), All: []Pair{{Name: "a", NotAfter: f.Now.Add(time.Hour), RenewedBy: "x"}}}
	}, []string{"warn  control plane: nobody has looked at its certificates since " + stamp(now.Add(-26*time.Hour)) +
		"; fix: systemctl status node-cert-agent-renew.service"}},
	"no name": {func(f *Facts) { f.Node.Name = "" },
		[]string{"fail  node name: unknown: the kubelet is given none and the host's is not one; fix: set `node: {name: " +
			"NAME}`, NAME as kubectl get nodes shows it"}},
	"a name that may be another one": {func(f *Facts) { f.Node.Problem = "kubelet\n" },
		[]string{`warn  node name: worker-1, and perhaps another one: kubelet\n; fix: set ` +
			"`node: {name: NAME}`, NAME as kubectl get nodes shows it"}},
	"a directory that is missing, of which its file says nothing more": {func(f *Facts) {
		f.Directories[0].Problem = "does not exist"
		f.Files[0].File = plan.File{Kind: plan.Irregular, Reason: "its directory does not exist"}
	}, []string{"warn  directory: /etc/kubernetes: does not exist; for kubeAPIServerServingCAData; fix: make it, or turn " +
		"off what goes there: `files: {kubeAPIServerServingCAData: {enabled: false}}`"}},
	"a directory of somebody else": {func(f *Facts) { f.Directories[0].UID = 1001 },
		[]string{"fail  directory: /etc/kubernetes: uid 1001, mode 0755: the writer is root without capabilities and cannot " +
			"write there; fix: chown root /etc/kubernetes && chmod u+rwx /etc/kubernetes"}},
	"a directory on a read-only file system of the host": {func(f *Facts) {
		f.Mounts = mounts[:strings.Index(mounts, "3 2")]
	},
		[]string{"fail  directory: /etc/kubernetes: its file system is mounted read-only; for kubeAPIServerServingCAData; " +
			"fix: mount it writable, or turn off what goes there: `files: {kubeAPIServerServingCAData: {enabled: false}}`",
			"fail  directory: /etc/docker/certs.d: its file system is mounted read-only; for imageRegistryBundleData; fix: " +
				"mount it writable, or turn off what goes there: `files: {imageRegistryBundleData: {enabled: false}}`"}},
	"a host whose mounts are all writable": {func(f *Facts) { f.Mounts = mounts }, nil},
	"directories of ours that nobody made": {func(f *Facts) {
		f.Missing = []string{"/run/node-cert-agent", "/etc/node-cert-agent/bootstrap.d"}
	},
		[]string{"fail  directory: /run/node-cert-agent: does not exist; the service cannot start without it; fix: " +
			makeOurs,
			"warn  directory: /etc/node-cert-agent/bootstrap.d: does not exist; for bootstrap files; fix: " + makeOurs}},
	"nobody to run as": {func(f *Facts) { f.NoUser = true },
		[]string{"fail  user: there is no user node-cert-agent, as which the service runs: it cannot start; fix: " +
			"systemd-sysusers node-cert-agent.conf && " + makeOurs}},
	"a directory without write permission": {func(f *Facts) { f.Directories[0].Mode = fs.ModeDir | 0o555 },
		[]string{"fail  directory: /etc/kubernetes: uid 0, mode 0555: the writer is root without capabilities and cannot " +
			"write there; fix: chown root /etc/kubernetes && chmod u+rwx /etc/kubernetes"}},
	"a directory outside of the writer's sandbox": {func(f *Facts) { f.Directories[0].Real = "/etc/kubernetes-2" },
		[]string{"fail  directory: /etc/kubernetes is read-only for the writer; fix: systemctl restart " +
			"node-cert-agent-writer.service, in case it was replaced meanwhile; else systemctl edit it: [Service] " +
			"ReadWritePaths=-/etc/kubernetes"}},
	"the profile openshift without the drop-in that comes with it": {func(f *Facts) {
		f.Profile, f.Host.MachineConfigDaemon = "openshift", true
		f.Policy.Files = append(f.Policy.Files, plan.FileSpec{Field: plan.KubeletKubeconfigCAData,
			Path: "/var/lib/kubelet/kubeconfig"})
		f.Directories = append(f.Directories, Directory{Path: "/var/lib/kubelet", Real: "/var/lib/kubelet",
			Mode: fs.ModeDir | 0o755})
	},
		[]string{"fail  directory: /var/lib/kubelet is read-only for the writer; fix: systemctl restart " +
			"node-cert-agent-writer.service, in case it was replaced meanwhile; else systemctl edit it: [Service] " +
			"ReadWritePaths=-/var/lib/kubelet"}},
	"a directory in /run without a drop-in": {func(f *Facts) {
		f.Directories[0].Real = "/run/kubernetes"
	},
		[]string{"fail  directory: /etc/kubernetes is read-only for the writer; fix: systemctl restart " +
			"node-cert-agent-writer.service, in case it was replaced meanwhile; else systemctl edit it: [Service] " +
			"BindPaths=-/run/kubernetes"}},
	"a resolver at the address that the unit denies": {func(f *Facts) {
		f.Resolvers = append(f.Resolvers, netip.MustParseAddr("169.254.169.254"))
	}, []string{cutOff}},
	"a drop-in that denies other addresses": {func(f *Facts) {
		f.Unit += "[Service]\nIPAddressDeny=\nIPAddressDeny=link-local\n"
		f.Resolvers = []netip.Addr{netip.MustParseAddr("169.254.169.254")}
	}, []string{cutOff}},
	"a drop-in that denies nothing": {func(f *Facts) {
		f.Unit += "[Service]\nIPAddressDeny=\n"
		f.Resolvers = []netip.Addr{netip.MustParseAddr("169.254.169.254")}
	}, nil},
	"a drop-in that allows the resolver": {func(f *Facts) {
		f.Unit += "[Service]\nIPAddressAllow = 169.254.169.0/24\n"
		f.Resolvers = []netip.Addr{netip.MustParseAddr("169.254.169.254")}
	}, nil},
	"a read-only file system": {func(f *Facts) {
		f.Writer.Mounts += "5 3 8:1 / /etc/kubernetes rw - ext4 /dev/sda1 ro,x\n"
	},
		[]string{"fail  directory: /etc/kubernetes is read-only for the writer; fix: systemctl restart " +
			"node-cert-agent-writer.service, in case it was replaced meanwhile; else systemctl edit it: [Service] " +
			"ReadWritePaths=-/etc/kubernetes"}},
	"a private key beside a bundle": {func(f *Facts) {
		f.Files[0].File = plan.File{Kind: plan.Irregular, Reason: "beside a private key, kubelet-ca.key"}
	}, []string{"warn  file: /etc/kubernetes/kubelet-ca.crt is not written: beside a private key, kubelet-ca.key; fix: " +
		"give it another path: `files: {kubeAPIServerServingCAData: {path: PATH}}`, or move what is in the way"}},
	"the key of kubeadm's CA": {func(f *Facts) {
		f.Files[0].Path = "/etc/kubernetes/pki/ca.crt"
		f.Files[0].File = plan.File{Kind: plan.Irregular, Reason: "beside a private key, ca.key"}
	}, []string{"warn  file: /etc/kubernetes/pki/ca.crt is not written: beside a private key, ca.key; fix: on a control " +
		"plane set `files: {kubeAPIServerServingCAData: {path: /etc/kubernetes/kubelet-ca.crt}}`, and the same " +
		"clientCAFile in /var/lib/kubelet/config.yaml"}},
	"a label of another type": {func(f *Facts) { f.Files[0].Label = "system_u:object_r:etc_t:s0" },
		[]string{"warn  SELinux: /etc/kubernetes/kubelet-ca.crt is etc_t, and its directory cert_t; fix: restorecon -nv " +
			"/etc/kubernetes/kubelet-ca.crt says whether that is right"}},
	"a label that cannot be seen": {func(f *Facts) { f.Files[0].Label = "" },
		[]string{"warn  SELinux: the label of /etc/kubernetes/kubelet-ca.crt or of its directory is unknown; fix: ls -Z " +
			"/etc/kubernetes/kubelet-ca.crt"}},
	"labels without SELinux": {func(f *Facts) { f.SELinux, f.Files[0].Label = false, "" }, nil},
	"no writer": {func(f *Facts) { f.Writer.Problem, f.Files = "writer unavailable: connection refused", nil },
		[]string{"fail  writer: writer unavailable: connection refused; fix: systemctl enable --now " +
			"node-cert-agent-writer.socket; systemctl status node-cert-agent-writer.service"}},
	"no reloader": {func(f *Facts) { f.Reloader.Problem, f.Systemd, f.Units = "connection refused", "", nil },
		[]string{"fail  reloader: no unit is acted on: connection refused; fix: systemctl enable --now " +
			"node-cert-agent-reloader.socket; systemctl status node-cert-agent-reloader.service dbus.socket"}},
	"the systemd of RHEL 8": {func(f *Facts) { f.Systemd = "239 (239-82.el8)" },
		[]string{"warn  systemd: 239 (239-82.el8) passes over parts of our units, whose sandbox is weaker for it: " +
			"Type=exec, LogRateLimitIntervalSec=, ProtectHostname=, RestrictSUIDSGID=, ProtectKernelLogs=, ProtectClock=, " +
			"LoadCredential=, ProtectProc=, ProcSubset=, FlushPending=, NoExecPaths=, ExecPaths=, PrivateIPC=; fix: use 248 or " +
			"later, which knows them all; until then place bootstrap files in /etc/node-cert-agent/bootstrap.d"}},
	"an older systemd": {func(f *Facts) { f.Systemd = "v238" },
		[]string{"fail  systemd: v238 is too old, or says no number; fix: use a host with 239 or later"}},
	"the last systemd that lacks something": {func(f *Facts) { f.Systemd = "247.3" },
		[]string{"warn  systemd: 247.3 passes over parts of our units, whose sandbox is weaker for it: NoExecPaths=, " +
			"ExecPaths=, PrivateIPC=; fix: use 248 or later, which knows them all"}},
	"the first systemd that lacks nothing": {func(f *Facts) { f.Systemd = "248~rc1" }, nil},
	"a unit that drags another along": {func(f *Facts) { f.Units[0].AlsoAffects = nil },
		[]string{"fail  unit: try-restart crio.service would also act on kubelet.service: it is refused; fix: add `units: " +
			"{crio.service: {alsoAffects: [kubelet.service]}}`"}},
	"a unit that does not exist": {func(f *Facts) { f.Units[0].Exists = false },
		[]string{"warn  unit: crio.service does not exist or is masked: it is never acted on; fix: correct the name, or " +
			"`units: {crio.service: {enabled: false}}`"}},
	"a unit by its alias": {func(f *Facts) { f.Units[0].Own = "cri-o.service" },
		[]string{"fail  unit: crio.service is an alias of cri-o.service: it is refused; fix: name cri-o.service in `units` " +
			"and in `onChange`"}},
	"a unit whose program the distribution does not have": {func(f *Facts) { f.Units[0].Absent = "/usr/bin/x" },
		[]string{"fail  unit: crio.service cannot start: there is no /usr/bin/x; fix: name this distribution's: systemctl " +
			"edit crio.service, [Service] ExecStart= and ExecStart=PROGRAM"}},
	"a unit that no file names": {func(f *Facts) { f.Policy.Files[0].OnChange = nil },
		[]string{"warn  unit: crio.service is on the allowlist, and no file names it: it is never acted on; fix: name it " +
			"where it is needed: `files: {FIELD: {onChange: [crio.service]}}`"}},
	"a unit of which nothing is known": {func(f *Facts) { f.Units[0].Problem = "unreachable" },
		[]string{"warn  unit: crio.service: unreachable; fix: "}},
	"a service that does not run, whose last words are old": {func(f *Facts) {
		f.Service.Active, f.Service.Error = false, "x"
	},
		[]string{"warn  service: node-cert-agent.service does not run; fix: systemctl enable --now node-cert-agent.service"}},
	"a service in trouble": {func(f *Facts) { f.Service.Error = "disk\tfull" },
		[]string{`fail  service: its last reconcile could not be finished: disk\tfull; fix: journalctl -u node-cert-agent`}},
	"a service that does not follow and refuses something": {func(f *Facts) {
		f.Service.State, f.Service.Reason = "connecting", "refused"
		f.Service.Refused = []plan.Refusal{{Key: plan.Key{Field: plan.RootCAData}, Reason: "empty"}}
	}, []string{"warn  service: connecting: refused; fix: node-cert-agent status",
		"warn  service: it refuses rootCAData: empty; fix: correct the ControllerConfig or the configuration"}},
	"no identity": {func(f *Facts) {
		f.Identity, f.API = identityFacts{Problem: "none yet"}, API{}
		f.Clock.Server, f.Service.State = time.Time{}, "no identity"
	},
		[]string{"warn  service: no identity; fix: node-cert-agent status",
			"fail  identity: none yet; fix: put a kubeconfig with a bootstrap token into /etc/node-cert-agent/bootstrap.d; " +
				"node-cert-agent status says how far it is"}},
	"an identity that is elsewhere": {func(f *Facts) { f.Identity, f.API = identityFacts{Problem: "none yet"}, API{} },
		[]string{"warn  identity: not the service's own, which follows: none yet; fix: node-cert-agent check --kubeconfig " +
			"FILE, with the file that the service was given"}},
	"an identity that has ended": {func(f *Facts) { f.Identity.NotAfter = now },
		[]string{"fail  identity: its certificate ended at 2026-11-21T12:00:00Z; fix: " + another}},
	"an identity that was to be renewed": {func(f *Facts) { f.Service.Renew = now.Add(-2 * time.Hour) },
		[]string{"warn  identity: its certificate ends at 2026-11-21T14:00:00Z and should have been renewed by now; fix: " +
			another}},
	"an identity near its end, and nobody says why": {func(f *Facts) {
		f.Service.Renew, f.Identity.NotAfter = time.Time{}, now.Add(5*time.Minute)
	}, []string{"warn  identity: its certificate ends at 2026-11-21T12:05:00Z and should have been renewed by now; fix: " +
		another}},
	"a kubeconfig near its end, with nothing to ask": {func(f *Facts) {
		f.Identity.Foreign, f.Identity.NotAfter, f.API.MayAsk = true, now.Add(5*time.Minute), false
	},
		[]string{"warn  identity: the kubeconfig's certificate ends at 2026-11-21T12:05:00Z; fix: renew the kubeconfig's " +
			"certificate"}},
	"an API server that is down": {func(f *Facts) {
		f.API = API{Asked: true, Server: "api:6443", Reason: "dial 10.0.0.1:6443: connection refused"}
		f.Clock.Server = time.Time{}
	},
		[]string{"fail  API server: api:6443 does not answer: dial 10.0.0.1:6443: connection refused; fix: look at the " +
			"network and at the API server; files stay as they are until it answers"}},
	"an API server that nobody can verify": {func(f *Facts) {
		f.API = API{Asked: true, Server: "api:6443", Reason: "unknown authority", Untrusted: true}
	},
		[]string{"fail  API server: api:6443 cannot be verified: unknown authority; fix: put a bootstrap file with the " +
			"server's CA into /etc/node-cert-agent/bootstrap.d"}},
	"an identity that the API server does not know": {func(f *Facts) {
		f.API = API{Asked: true, Server: "api:6443",
			Status: 401, Reason: "x"}
	},
		[]string{"fail  API server: api:6443 does not know us; fix: put a kubeconfig with a bootstrap token into " +
			"/etc/node-cert-agent/bootstrap.d"}},
	"an API server in trouble": {func(f *Facts) {
		f.API = API{Asked: true, Server: "api:6443", Status: 500,
			Reason: "etcd"}
	},
		[]string{"fail  API server: api:6443: etcd; fix: "}},
	"a renewal that is not permitted": {func(f *Facts) { f.API.MayAsk = false },
		[]string{"fail  renewal: node-cert-agent:node:worker-1 may not request certificates, and ends with the one it has; " +
			"fix: kubectl apply -k packaging/kubernetes"}},
	"a renewal that is unknown": {func(f *Facts) { f.API.MayAsk, f.API.AskReason = false, "timeout" },
		[]string{"warn  renewal: whether it is permitted could not be asked: timeout; fix: "}},
	"a cluster of another kind": {func(f *Facts) { f.API.Objects[0].Status, f.API.Objects[0].NoKind = 404, true },
		[]string{"fail  ControllerConfig: the server has no controllerconfigs.x y, which is what profile standalone watches; fix: " +
			"choose the profile of this cluster, or install the kind: kubectl apply -k packaging/kubernetes"}},
	"no object": {func(f *Facts) { f.API.Objects[0].Status = 404 },
		[]string{"warn  ControllerConfig: controllerconfigs.x y does not exist; fix: create it, or configure its name"}},
	"an object that may not be read": {func(f *Facts) { f.API.Objects[0].Status, f.API.Objects[0].Reason = 403, "no" },
		[]string{"fail  ControllerConfig: controllerconfigs.x y may not be read: no; fix: kubectl apply -k packaging/kubernetes"}},
	"an object that cannot be read": {func(f *Facts) { f.API.Objects[0].Status, f.API.Objects[0].Reason = 500, "etcd" },
		[]string{"fail  ControllerConfig: controllerconfigs.x y could not be read: etcd; fix: "}},
	"a clock that is a little fast": {func(f *Facts) { f.Clock.Server = now.Add(-time.Minute) },
		[]string{"warn  clock: 1m0s ahead of the API server's; fix: " + noteTime}},
	"a clock that is very slow": {func(f *Facts) { f.Clock.Server = now.Add(time.Hour) },
		[]string{"fail  clock: 1h0m0s behind the API server's; fix: " + noteTime}},
	"a clock from before the program": {func(f *Facts) { f.Clock.Built = now.Add(time.Hour) },
		[]string{"fail  clock: 2026-11-21T12:00:00Z is before this program was built; fix: " + noteTime}},
	"a clock from before a certificate": {func(f *Facts) { f.Clock.Newest = now.Add(time.Hour) },
		[]string{"warn  clock: 2026-11-21T12:00:00Z is before a certificate here becomes valid, at 2026-11-21T13:00:00Z; " +
			"fix: " + noteTime}},
	"a tree, of which nothing is asked that only a host has": {func(f *Facts) {
		f.Plain, f.Root, f.Directories[0].UID = true, false, 1000
		f.Reloader, f.Systemd, f.Service, f.Units = reloaderFacts{}, "", serviceFacts{}, nil
	}, nil},
}

func TestWhatIsWrongIsSaidWithWhatToDo(t *testing.T) {
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			f := good()
			c.change(&f)
			var have []string
			for _, f := range Judge(f) {
				if f.Level != OK {
					have = append(have, text(f))
				}
				if strings.ContainsFunc(f.Fact+f.Fix, func(c rune) bool { return c < ' ' || c > '~' }) {
					t.Errorf("not one printable line: %q", f)
				}
			}
			if !slices.Equal(have, c.want) {
				t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestEverythingThatIsLookedAtIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/usage/check.md")
	if err != nil {
		t.Fatal(err)
	}
	for sentence, c := range cases {
		f := good()
		c.change(&f)
		for _, f := range Judge(f) {
			if !strings.Contains(string(page), "\n| `"+f.What+"`") && !strings.Contains(string(page), ", `"+f.What+"` |") {
				t.Errorf("%s: no line says when %q is good", sentence, f.What)
			}
		}
	}
}
