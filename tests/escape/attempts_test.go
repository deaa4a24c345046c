// SPDX-License-Identifier: Apache-2.0

//go:build real

package escape

import (
	"crypto/sha256"
	stdbase64 "encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

func base64(b []byte) string { return stdbase64.StdEncoding.EncodeToString(b) }

func refused(do string, args ...string) attempt {
	return attempt{Name: do + " " + strings.Join(args, " "), Do: do, Args: args}
}

// onFiles tries every file of the layout, and the new names that root's programs would take up.
func (l layout) onFiles() (out []attempt) {
	for p, f := range l.files {
		out = append(out, refused("write", p), refused("unlink", p), refused("chmod", p),
			refused("write", path.Dir(p)+"/new"),
			refused("rename", p, "/run/node-cert-agent/stolen"), refused("rename", "/run/node-cert-agent/status.json", p),
			refused("link", "/etc/passwd", path.Dir(p)+"/linked"),
			refused("symlink", "/etc/shadow", path.Dir(p)+"/linked"), refused("mkdir", path.Dir(p)+"/made"))
		if strings.Contains(string(f.Data), secret) {
			out = append(out, refused("read", p))
		}
	}
	for _, p := range []string{
		"/etc/kubernetes/kubelet-env", "/etc/kubernetes/kubelet-plugins/volume/exec/escape~x/x",
		"/etc/kubernetes/manifests/pod.yaml", "/etc/kubernetes/kubelet-ca.crt",
		"/etc/node-cert-agent/config.d/99-x.yaml", "/run/node-cert-agent/config.d/99-x.yaml",
		"/usr/lib/node-cert-agent/config.d/99-x.yaml",
		"/etc/systemd/system/x.service", "/run/systemd/system/x.service", "/run/systemd/transient/x.service",
		"/etc/systemd/system/node-cert-agent.service.d/x.conf",
		"/etc/polkit-1/rules.d/00-x.rules", "/usr/share/polkit-1/rules.d/00-x.rules", "/etc/sudoers.d/x", "/etc/cron.d/x",
		"/etc/ld.so.preload", "/etc/profile.d/x.sh",
		"/etc/udev/rules.d/x.rules", "/run/udev/rules.d/x.rules", "/etc/tmpfiles.d/x.conf", "/usr/bin/node-cert-agent",
		"/boot/x", "/root/x", "/home/x", "/var/lib/kubelet/x",
		"/dev/shm/x", "/proc/sys/kernel/core_pattern", "/sys/kernel/uevent_helper", "/proc/sysrq-trigger", "/etc/passwd",
	} {
		out = append(out, refused("write", p))
	}
	for _, p := range []string{"/etc/shadow", "/root/.ssh/id_ecdsa", "/etc/node-cert-agent/bootstrap.d/x.note", "/dev/mem",
		"/dev/kmsg"} {
		out = append(out, refused("read", p))
	}
	return append(out,
		refused("rename", "/run/node-cert-agent/config.d", "/run/node-cert-agent/old"),
		refused("rename", "/run/node-cert-agent-writer.sock", "/run/node-cert-agent/writer.sock"),
		attempt{Name: "its own directory", Do: "write", Args: []string{"/var/lib/node-cert-agent/x"}, Allowed: true})
}

var sockets = []attempt{
	refused("connect", "/run/containerd/containerd.sock"), refused("connect", "/run/crio/crio.sock"),
	refused("connect", "/run/private.sock"),
	refused("connect", "/run/systemd/private"), refused("netlink"),
	{Name: "the writer's socket", Do: "connect", Args: []string{"/run/node-cert-agent-writer.sock"}, Allowed: true},
}

// processes tries other processes, and to become somebody else.
func processes(pid func(unit string) string) []attempt {
	out := []attempt{refused("kill", "1"), refused("ptrace", "1"), refused("read", "/proc/1/environ")}
	for _, unit := range []string{"node-cert-agent-writer.service", "kubelet.service", "dbus.service",
		"systemd-journald.service"} {
		p := pid(unit)
		for _, a := range []attempt{refused("kill", p), refused("stop", p), refused("ptrace", p),
			refused("write", "/proc/"+p+"/mem"), refused("read", "/proc/"+p+"/environ"),
			refused("write", "/proc/"+p+"/oom_score_adj")} {
			a.Name += " (" + unit + ")"
			out = append(out, a)
		}
	}
	return append(out, refused("setuid"), refused("mount"), refused("unshare"),
		refused("mknod", "/var/lib/node-cert-agent/disk"), refused("suid"),
		refused("exec", "/bin/sh", "-c", "true"), refused("exec", "/usr/bin/su"))
}

const (
	manager = "org.freedesktop.systemd1.Manager."
	login   = "org.freedesktop.login1.Manager."
)

// buses are the addresses at which a bus, or systemd itself, might be reached.
var buses = []string{
	"unix:path=/run/dbus/system_bus_socket", "unix:path=/var/run/dbus/system_bus_socket", "unix:path=/run/systemd/private",
	"unix:path=/run/user/0/bus", "unix:path=/run/user/0/systemd/private", "unix:abstract=/run/dbus/system_bus_socket",
	"tcp:host=127.0.0.1,port=55556",
}

// modes are those of systemd's jobs, also the ones that only some verbs take.
var modes = []string{"replace", "fail", "replace-irreversibly", "isolate", "flush", "ignore-dependencies",
	"ignore-requirements",
	"triggering", "restart-dependencies", "lenient"}

// bus tries what D-Bus offers, at every address: all verbs in all modes on the allowlisted unit, and a selection of
// the rest on others. None is for the agent, the allowlisted reload included.
func bus() (out []attempt) {
	call := func(address, service, object, method string, args ...string) {
		name := fmt.Sprintf("bus %s: %s %s", address, method, strings.Join(args, " "))
		out = append(out, attempt{Name: name, Do: "bus", Args: append([]string{address, service, object, method}, args...)})
	}
	systemd := func(address, method string, args ...string) {
		call(address, "org.freedesktop.systemd1", "/org/freedesktop/systemd1", manager+method, args...)
	}
	for _, address := range buses {
		for _, mode := range modes {
			for _, verb := range []string{"ReloadUnit", "TryRestartUnit", "RestartUnit", "ReloadOrRestartUnit", "StopUnit",
				"StartUnit"} {
				systemd(address, verb, "s:reader.service", "s:"+mode)
			}
			systemd(address, "StopUnit", "s:kubelet.service", "s:"+mode)
		}
		systemd(address, "StartUnit", "s:reboot.target", "s:replace-irreversibly")
		systemd(address, "StartUnit", "s:rescue.target", "s:isolate")
		systemd(address, "KillUnit", "s:reader.service", "s:all", "i:9")
		systemd(address, "CancelJob", "u:1")
		systemd(address, "ClearJobs")
		for _, method := range []string{"Reload", "Reexecute", "Reboot", "PowerOff", "Exit", "ResetFailed"} {
			systemd(address, method)
		}
		systemd(address, "SetEnvironment", "as:LD_PRELOAD=/x")
		systemd(address, "MaskUnitFiles", "as:kubelet.service", "b:false", "b:true")
		systemd(address, "LinkUnitFiles", "as:/var/lib/node-cert-agent/x.service", "b:true", "b:true")
		call(address, "org.freedesktop.login1", "/org/freedesktop/login1", login+"Reboot", "b:false")
		call(address, "org.freedesktop.login1", "/org/freedesktop/login1", login+"Inhibit", "s:shutdown", "s:x", "s:x",
			"s:block")
		call(address, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.RequestName",
			"s:org.freedesktop.systemd1", "u:4")
		call(address, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.ListNames")
	}
	return append(out, attempt{Name: "a transient unit", Do: "transient"},
		attempt{Name: "a bus among the abstract sockets", Do: "abstract"})
}

func act(unit string) string { return fmt.Sprintf(`{"act":%q}`, unit) }

// actions speak to the reloader.
func actions() []attempt {
	out := []attempt{
		{Name: "reloader: the allowlisted reload", Do: "reloader", Args: []string{act("reader.service")}, Allowed: true},
		{Name: "reloader: what systemd says of it", Do: "reloader", Args: []string{`{"observe":["reader.service"]}`},
			Allowed: true},
		{Name: "reloader: systemd's version", Do: "reloader", Args: []string{`{"version":true}`}, Allowed: true},
	}
	for _, unit := range []string{"kubelet.service", "victim.service", "hold.service", "node-cert-agent.service",
		"node-cert-agent-writer.socket",
		"reboot.target", "rescue.target", "debug-shell.service", "alias.service", "reader", "reader.service ",
		" reader.service", "READER.SERVICE",
		"reader.service\x00", "reader.service\n", "reader*", "../reader.service", "/etc/systemd/system/reader.service",
		"reader@.service", "-.mount"} {
		out = append(out, attempt{Name: fmt.Sprintf("reloader: act on %q", unit), Do: "reloader", Args: []string{act(unit)}},
			attempt{Name: fmt.Sprintf("reloader: look at %q", unit), Do: "reloader",
				Args: []string{fmt.Sprintf(`{"observe":[%q]}`, unit)}})
	}
	for name, text := range map[string]string{
		"a mode": `{"act":"reader.service","mode":"flush"}`, "a verb": `{"act":"reader.service","verb":"stop"}`,
		"two things": `{"act":"reader.service","version":true}`, "two requests": act("reader.service") +
			act("reader.service"),
		"nothing": `{}`, "an empty name": `{"act":""}`, "a list": `{"act":["reader.service"]}`,
		"too many":               `{"observe":[` + strings.Repeat(`"reader.service",`, 32) + `"reader.service"]}`,
		"a unit whose job waits": act("waiting.service"),
	} {
		out = append(out, attempt{Name: "reloader: " + name, Do: "reloader", Args: []string{text}})
	}
	return out
}

// network tries where clouds hand out the host's credentials. Elsewhere it may go.
var network = []attempt{
	refused("dial", "tcp", "169.254.169.254:80"),
	{Name: "dial the loopback", Do: "dial", Args: []string{"tcp", "127.0.0.1:80"}, Allowed: true},
}

// commit is a request with contents, written by hand: what a client of ours would never send.
func commit(name string, writes []map[string]any, contents ...string) attempt {
	sizes := make([]int, len(contents))
	for i, c := range contents {
		sizes[i] = len(c)
	}
	for _, w := range writes {
		if _, ok := w["data"]; !ok {
			w["data"] = nil
		}
	}
	text, err := json.Marshal(map[string]any{"commit": map[string]any{"writes": writes}, "sizes": sizes})
	if err != nil {
		panic(err)
	}
	return attempt{Name: "writer: " + name, Do: "writer", Args: append([]string{string(text)}, contents...)}
}

func write(field, name string) []map[string]any {
	return []map[string]any{{"field": field, "name": name}}
}

func removal(name, field, entry string, of []byte) attempt {
	sum := sha256.Sum256(of)
	text := fmt.Sprintf(`{"commit":{"removals":[{"field":%q,"name":%q,"digest":%q}]}}`, field, entry,
		hex.EncodeToString(sum[:]))
	return attempt{Name: "writer: " + name, Do: "writer", Args: []string{text}}
}

// requests speaks to the writer.
func (l layout) requests(good, spent []byte) []attempt {
	const kubelet, registry = "kubeAPIServerServingCAData", "imageRegistryBundleData"
	pem := string(good)
	key := string(testpki.New("key", testpki.ECDSA).KeyPEM())
	out := []attempt{
		commit("a field that does not exist", write("evil", ""), pem),
		commit("a field with a name that it does not take", write(kubelet, "x"), pem),
		commit("a path", []map[string]any{{"field": kubelet, "path": "/etc/kubernetes/manifests/x"}}, pem),
		commit("a mode", []map[string]any{{"field": kubelet, "mode": 0o777}}, pem),
		commit("a private key", write(kubelet, ""), pem+key),
		commit("a program", write(kubelet, ""), "#!/bin/sh\n"),
		commit("nothing", write(kubelet, ""), ""),
		commit("half a certificate", write(kubelet, ""), pem[:len(pem)/2]),
		commit("trust that only p11-kit would see", write(kubelet, ""), "[p11-kit-object-v1]\n"+pem),
		commit("a bundle with which the kubelet does not start", write(kubelet, ""),
			strings.Replace(pem, "-----\n", "-----\nA: b\n\n", 1)),
		commit("too much", write(kubelet, ""), strings.Repeat(pem, 1+(3<<20)/len(pem))),
		commit("a good field beside a bad one", append(write(kubelet, ""), write("evil", "")...), pem, pem),
		commit("one file twice", append(write(kubelet, ""), write(kubelet, "")...), pem, pem),
		{Name: "writer: sizes that lie", Do: "writer", Args: []string{`{"commit":{"writes":[{"field":"` + kubelet +
			`","data":null}]},"sizes":[99999]}`, pem}},
		{Name: "writer: two things at once", Do: "writer", Args: []string{`{"sweep":true,"bootstrap":true}`}},
		{Name: "writer: an unknown request", Do: "writer", Args: []string{`{"exec":"/bin/sh"}`}},
		{Name: "writer: an announcement of 4 GiB", Do: "raw", Args: []string{"01ffffffff00000000"}},
		removal("a file whose bytes are not known", registry, "registry.example", []byte("guess")),
		{Name: "writer: another protocol", Do: "raw", Args: []string{"02000000020000000000007b7d"}},
	}
	for _, id := range l.closed {
		out = append(out, commit("the field "+string(id)+", which is off", write(string(id), ""), pem))
	}
	for _, name := range []string{"", ".", "..", "../../kubernetes/manifests", "../../kubernetes", "a/b", "/etc", "a\x00b",
		"a\nb", ".hidden", "a..b/..", strings.Repeat("a", 300), "x:99999999"} {
		out = append(out, commit(fmt.Sprintf("the registry %.20q", name), write(registry, name), pem))
	}
	return append(slices.Clip(out), l.permitted(good, spent)...)
}

// permitted is what a compromised agent may do: invariant I5 names it.
func (l layout) permitted(good, spent []byte) []attempt {
	const kubelet, registry = "kubeAPIServerServingCAData", "imageRegistryBundleData"
	out := []attempt{
		commit("a valid bundle to a configured file", write(kubelet, ""), string(good)),
		commit("a valid bundle for a registry", write(registry, "good.example:5000"), string(good)),
		commit("and another", write(registry, "spent.example"), string(spent)),
		removal("a registry's file whose bytes are known", registry, "spent.example", spent),
		{Name: "writer: observe", Do: "writer", Args: []string{`{"observe":[{"field":"` + kubelet + `"}]}`}},
		{Name: "writer: sweep", Do: "writer", Args: []string{`{"sweep":true}`}},
		{Name: "writer: bootstrap", Do: "writer", Args: []string{`{"bootstrap":true}`}},
	}
	if l.profile == "openshift" {
		out = append(out, attempt{Name: "writer: observe a kubeconfig, of which one value is shown", Do: "writer",
			Args: []string{`{"observe":[{"field":"kubeconfigCAData"},{"field":"kubeletKubeconfigCAData"}]}`}})
	}
	for i := range out {
		out[i].Allowed = true
	}
	return append(out, removal("the kubelet's CA, though its bytes are known", kubelet, "", good))
}
