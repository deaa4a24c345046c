// SPDX-License-Identifier: Apache-2.0

package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// site is the fragment of these tests; problems are given without its path.
const site = etcDir + "50-site.yaml"

func TestRefusedFragments(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"no apiVersion": {"node: {name: a}\n", "1: apiVersion: missing; want config.node-cert-agent.io/v1alpha1"},
		"another apiVersion": {"apiVersion: v2\n",
			`1: apiVersion: "v2" is not possible; want "config.node-cert-agent.io/v1alpha1"`},
		"not a mapping": {"- a\n", "1: want a mapping of keys, have a list"},
		"a writer unknown to us": {header + "coexist: [puppet]\n",
			`2: coexist: "puppet" is not known; want machine-config-daemon or node-ca`},
		"an unknown key": {header + "\nnodes: {}\n",
			"3: nodes: unknown key; want one of actions, apiVersion, bootstrap, coexist, configMap, controllerConfig, files, " +
				"identity, " +
				"node, probe, profile, renewal, resync, trust, units, watch"},
		"an unknown deep key": {header + "watch:\n  retryMax: 1m\n  resynk: 1m\n",
			"4: watch.resynk: unknown key; want one of idleTimeout, retryJitter, retryMax, timeout"},
		"an unknown field": {header + "files:\n  rootCAdata: {}\n",
			"3: files.rootCAdata: unknown key; want one of additionalTrustBundle, cloudProviderCAData, imageRegistryBundleData, " +
				"imageRegistryBundleUserData, internalRegistryPullSecret, kubeAPIServerServingCAData, kubeconfigCAData, " +
				"kubeletKubeconfigCAData, rootCAData"},
		"a repeated key": {header + "node: {name: a}\nnode: {name: b}\n", "3: node: given twice; first in line 2"},
		"a repeated unit": {header + "units:\n  a.service: {verb: reload}\n  a.service: {verb: reload}\n",
			"4: units.a.service: given twice; first in line 3"},
		"a second document": {header + "---\n" + header, "2: a second document: one file holds one"},
		"broken YAML": {header + "node: {name: [}\n",
			"1: not YAML here or just below: did not find expected node content"},
		"a tab": {header + "node:\n\tname: a\n",
			"3: not YAML here or just below: found character that cannot start any token"},
		"an alias": {header + "files:\n  rootCAData: &a {}\n  cloudProviderCAData: *a\n",
			"3: files.rootCAData: anchors and aliases are not accepted\n4: files.cloudProviderCAData: anchors and aliases are " +
				"not accepted"},
		"a merge key": {header + "node:\n  <<: {name: a}\n", "3: node.<<: unknown key; want one of name"},
		"a tag":       {header + "node: {name: !!str 1}\n", "2: node.name: tags are not accepted"},
		"a key with a newline": {header + "\"a\\nb\": 1\n",
			`2: "a\nb": unknown key; want one of actions, apiVersion, bootstrap, coexist, configMap, controllerConfig, files, identity, node, probe, profile, renewal, resync, trust, units, watch`},
		"a key that is a list": {header + "[a]: 1\n", "2: a key must be a plain word"},
		"nothing below a key":  {header + "files:\n", "2: files: want a mapping of keys, have nothing"},
		"a number as string": {header + "node: {name: 10}\n",
			"2: node.name: want a string, in quotes if need be; have a number or date"},
		"several problems": {header + "node: {name: A_B}\nresync: 1\nwatch:\n  idleTimeout: 1h1s\n",
			`2: node.name: "A_B" is not a lower-case DNS name
3: resync: want a duration from 1s to 24h0m0s, such as 500ms, 90s or 10m
5: watch.idleTimeout: want a duration from 1s to 1h0m0s, such as 500ms, 90s or 10m`},
		"a profile that does not exist": {header + "profile: openshft\n",
			`2: profile: no profile "openshft"; want one of kubeadm, openshift, standalone`},
		"a pull secret that the group may read": {header + "files: {internalRegistryPullSecret: {mode: \"0640\"}}\n",
			`2: files.internalRegistryPullSecret.mode: 0640 lets others read a secret; want "0600" or "0400"`},
		"a mode for a file that is edited": {header + "files: {kubeconfigCAData: {mode: \"0600\"}}\n",
			"2: files.kubeconfigCAData.mode: not possible: this field's file is there and is edited, and keeps its mode and " +
				"owner"},
		"an owner for a file that is edited": {header + "files: {kubeletKubeconfigCAData: {owner: root:root}}\n",
			"2: files.kubeletKubeconfigCAData.owner: not possible: this field's file is there and is edited, and keeps its " +
				"mode and owner"},
		"a key that no ConfigMap has": {header + "configMap: {key: a/b}\n",
			`2: configMap.key: "a/b" is not a key of a ConfigMap`},
		"a profile with a path": {header + "profile: ../x\n",
			`2: profile: "../x" is not a profile's name in lower case`},
		"pauses the wrong way round": {header + "identity: {deniedMin: 2h}\n",
			`2: identity.deniedMin: more than identity.deniedMax, which is 1h0m0s`},
		"an object without a group": {header + "controllerConfig: {group: \"\"}\n",
			`2: controllerConfig.group: "" is not a lower-case DNS name`},
		"a version that is none": {header + "controllerConfig: {version: latest}\n",
			`2: controllerConfig.version: "latest" is not an API version such as v1`},
		"a kind for a resource": {header + "controllerConfig: {resource: ControllerConfig}\n",
			`2: controllerConfig.resource: "ControllerConfig" is not a resource's plural name in lower case`},
		"a negative duration": {header + "actions: {randomizedDelay: -1s}\n",
			"2: actions.randomizedDelay: want a duration from 0s to 24h0m0s, such as 500ms, 90s or 10m"},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) { refused(t, tt.text, tt.want) })
	}
}

// refused compares the problems of one fragment, each with the fragment's path before it.
func refused(t *testing.T, text, want string) {
	t.Helper()
	have := strings.Join(problems(t, map[string]string{site: text}), "\n")
	want = site + ":" + strings.ReplaceAll(want, "\n", "\n"+site+":")
	if have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
}

const braces = "braces are for placeholders: one {name} as the directory above a registry's file, or one {sha256} " +
	"in the name of additionalTrustBundle's file"

const noAddress = `is not an IP address of this host and a port, such as "127.0.0.1:10250" or "[::1]:10250"`

var refusedFiles = map[string]struct{ field, key, value, want string }{
	"a relative file": {"rootCAData", "path", "etc/ca.crt",
		`"etc/ca.crt" is not an absolute path in its shortest form`},
	"a file that climbs": {"rootCAData", "path", "/etc/kubernetes/../ca.crt",
		`"/etc/kubernetes/../ca.crt" is not an absolute path in its shortest form`},
	"a directory": {"rootCAData", "path", "/etc/kubernetes/",
		`"/etc/kubernetes/" is not an absolute path in its shortest form`},
	"a file in the root":  {"rootCAData", "path", "/ca.crt", "lies in the root directory"},
	"a control character": {"rootCAData", "path", `"/etc/a\x1bb"`, "holds the byte 0x1b"},
	"an overlong file": {"rootCAData", "path", "/etc/" + strings.Repeat("a/", 1600) + "a",
		"3206 bytes long; want at most 3072"},
	"our own configuration": {"rootCAData", "path", "/etc/node-cert-agent/config.d/x",
		"/etc/node-cert-agent belongs to node-cert-agent itself: no managed file may be there"},
	"our own state": {"rootCAData", "path", "/var/lib/node-cert-agent/x",
		"/var/lib/node-cert-agent belongs to node-cert-agent itself: no managed file may be there"},
	"a kernel file": {"rootCAData", "path", "/proc/sys/kernel/core_pattern",
		"/proc belongs to the kernel: no managed file may be there"},
	"a unit file": {"rootCAData", "path", "/run/systemd/system/x.service",
		"/run/systemd tells systemd, D-Bus or polkit what to do: no managed file may be there"},
	"a polkit rule": {"rootCAData", "path", "/etc/polkit-1/rules.d/x",
		"/etc/polkit-1 tells systemd, D-Bus or polkit what to do: no managed file may be there"},
	"a static pod": {"rootCAData", "path", "/etc/kubernetes/manifests/x",
		"/etc/kubernetes/manifests holds static pods: no managed file may be there"},
	"a program": {"rootCAData", "path", "/usr/bin/x", "/usr/bin holds programs: no managed file may be there"},
	"a shared directory": {"rootCAData", "path", "/tmp/x",
		"/tmp can be written by everyone: no managed file may be there"},
	"a placeholder elsewhere": {"rootCAData", "path", `"/etc/{name}/ca.crt"`, braces},
	"a stray brace":           {"rootCAData", "path", `"/etc/a}"`, braces},
	"a registry field without name": {"imageRegistryBundleData", "path", "/etc/docker/certs.d/ca.crt",
		"the directory above the file must be {name}: there is one for each registry"},
	"a name inside an element": {"imageRegistryBundleData", "path", `"/etc/docker/certs.d/x{name}/ca.crt"`,
		"the directory above the file must be {name}: there is one for each registry"},
	"a name as the file": {"imageRegistryBundleData", "path", `"/etc/docker/certs.d/{name}"`,
		"the directory above the file must be {name}: there is one for each registry"},
	"two names":               {"imageRegistryBundleData", "path", `"/etc/{name}/{name}/ca.crt"`, braces},
	"a fingerprint directory": {"additionalTrustBundle", "path", `"/etc/{sha256}/ca.crt"`, braces},
	"two fingerprints":        {"additionalTrustBundle", "path", `"/etc/x/{sha256}{sha256}"`, braces},
	"a mode without quotes":   {"rootCAData", "mode", "0644", `want a mode in quotes, such as "0644"`},
	"a decimal mode": {"rootCAData", "mode", `"644"`,
		`want a 0 and three octal digits in quotes, such as "0644"; special bits are not possible`},
	"a setuid mode": {"rootCAData", "mode", `"4644"`,
		`want a 0 and three octal digits in quotes, such as "0644"; special bits are not possible`},
	"a group-writable mode": {"rootCAData", "mode", `"0664"`,
		`0664 lets group or others write what root trusts; want at most "0755"`},
	"a world-writable mode": {"rootCAData", "mode", `"0602"`,
		`0602 lets group or others write what root trusts; want at most "0755"`},
	"an unreadable mode": {"rootCAData", "mode", `"0044"`, "0044 keeps the owner from reading the file"},
	"an owner by name": {"rootCAData", "owner", "kube:kube",
		`want "root:root" or "UID:GID" in numbers; other names are not looked up`},
	"an owner without group": {"rootCAData", "owner", "root",
		`want "root:root" or "UID:GID" in numbers; other names are not looked up`},
	"the owner that means none": {"rootCAData", "owner", `"4294967295:0"`,
		`want "root:root" or "UID:GID" in numbers; other names are not looked up`},
	"a word for a switch": {"rootCAData", "enabled", "yes", "want true or false, have a string"},
	"a link by string":    {"rootCAData", "followLink", `"true"`, "want true or false, have a string"},
	"a string for a list": {"rootCAData", "onChange", "crio.service",
		"want a list such as [crio.service], have a string"},
	"a unit twice":       {"rootCAData", "onChange", "[a.service, a.service]", `"a.service" is listed twice`},
	"another validation": {"rootCAData", "validate", "none", `"none" is not possible; want "warn" "strict"`},
	"a unit not on the allowlist": {"rootCAData", "onChange", "[a.service]",
		"a.service is not on the allowlist; to allow it add `units: {a.service: {verb: reload}}`, or try-restart"},
	"the trust store not allowed": {"additionalTrustBundle", "onChange", "[node-cert-agent-update-ca-trust.service]",
		"node-cert-agent-update-ca-trust.service is not on the allowlist; to allow it add `units: " +
			"{node-cert-agent-update-ca-trust.service: {verb: restart}}`"},
	"consumers that are no list": {"rootCAData", "verify", "{kind: clientCA}",
		`want a list such as [{kind: clientCA, address: "127.0.0.1:10250"}], have a mapping`},
	"a consumer that is a word": {"rootCAData", "verify", "[kubelet]",
		"entry 1: want a mapping of keys, have a string"},
	"a consumer by a link": {"rootCAData", "verify", "[&a {kind: serving}]",
		"entry 1: anchors and aliases are not accepted"},
	"a consumer with an unknown key": {"rootCAData", "verify", "[{kinds: clientCA}]",
		"entry 1: kinds: unknown key; want one of kind, address, others, mismatch"},
	"a consumer of an unknown kind": {"rootCAData", "verify", "[{kind: http}]",
		`entry 1: kind: "http" is not possible; want "clientCA" "serving" "apiserver"`},
	"a consumer of no kind": {"rootCAData", "verify", `[{address: "127.0.0.1:1"}]`,
		"entry 1: kind: missing; want clientCA, serving or apiserver"},
	"a consumer that is nowhere": {"rootCAData", "verify", "[{kind: serving}]",
		`entry 1: address: missing; want an IP address and a port, such as "127.0.0.1:10250"`},
	"a consumer by name": {"rootCAData", "verify", `[{kind: serving, address: "localhost:1"}]`,
		`entry 1: address: "localhost:1" ` + noAddress},
	"a consumer everywhere": {"rootCAData", "verify", `[{kind: serving, address: "0.0.0.0:1"}]`,
		`entry 1: address: "0.0.0.0:1" ` + noAddress},
	"a consumer without a port": {"rootCAData", "verify", `[{kind: serving, address: "127.0.0.1:0"}]`,
		`entry 1: address: "127.0.0.1:0" ` + noAddress},
	"a consumer that does not serve CAs": {"rootCAData", "verify",
		`[{kind: serving, address: "127.0.0.1:1", others: true}]`, "entry 1: others: only a clientCA server announces CAs"},
	"a mismatch that means nothing": {"rootCAData", "verify",
		`[{kind: serving, address: "127.0.0.1:1", mismatch: live}]`,
		`entry 1: mismatch: "live" is not possible; want "stale" "unknown"`},
	"a consumer twice": {"rootCAData", "verify",
		`[{kind: serving, address: "127.0.0.1:1"}, {kind: serving, address: "127.0.0.1:1"}]`,
		"entry 2: asks 127.0.0.1:1 the same as another"},
	"a consumer of one of many files": {"imageRegistryBundleData", "verify", `[{kind: serving, address: "127.0.0.1:1"}]`,
		"the field has a file for each entry, and no server shows which of them it uses"},
	"the file of another field": {"rootCAData", "path", "/etc/kubernetes/kubelet-ca.crt",
		"collides with kubeAPIServerServingCAData, whose path is /etc/kubernetes/kubelet-ca.crt " +
			"(builtin:standalone.yaml:LINE)"},
	"a file below another field's": {"rootCAData", "path", "/etc/kubernetes/kubelet-ca.crt/x",
		"collides with kubeAPIServerServingCAData, whose path is /etc/kubernetes/kubelet-ca.crt " +
			"(builtin:standalone.yaml:LINE)"},
}

func TestRefusedFields(t *testing.T) {
	for sentence, tt := range refusedFiles {
		t.Run(sentence, func(t *testing.T) {
			text := header + "files:\n  " + tt.field + ":\n    " + tt.key + ": " + tt.value + "\n"
			refused(t, text, "4: files."+tt.field+"."+tt.key+": "+tt.want)
		})
	}
}

func TestAFieldInTheWayOfARegistryIsRefused(t *testing.T) {
	lines := problems(t,
		map[string]string{site: header + "files: {rootCAData: {path: /etc/docker/certs.d/r.example.org/ca.crt}}\n"})
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "builtin:standalone.yaml:LINE: ") ||
		!strings.Contains(lines[0], "files.imageRegistryBundleData.path: collides with rootCAData") ||
		!strings.Contains(lines[0], "("+site+":2)") {
		t.Errorf("have %q", lines)
	}
}

func TestRefusedUnits(t *testing.T) {
	const carries = " carries the host and the agent's own rights; it cannot be on the allowlist"
	tests := map[string]struct{ name, want string }{
		"no suffix":        {"crio", `"crio" has no suffix such as .service; want the full name of the unit`},
		"another suffix":   {"crio.conf", `"crio.conf" has no suffix such as .service; want the full name of the unit`},
		"a socket":         {"crio.socket", `"crio.socket" is not a service; only services load certificates`},
		"a target":         {"reboot.target", `"reboot.target" is not a service; only services load certificates`},
		"init.scope":       {"init.scope", `"init.scope" is not a service; only services load certificates`},
		"a template":       {"a@.service", `"a@.service" is a template; name an instance of it`},
		"two at signs":     {"a@b@c.service", `"a@b@c.service" holds more than one @`},
		"a glob":           {"cri*.service", `"cri*.service" is a pattern; name each unit in full`},
		"a path":           {"a/b.service", `"a/b.service" is not a unit name: it holds '/'`},
		"a quote":          {`a\"b.service`, `"a\"b.service" is not a unit name: it holds '"'`},
		"only a suffix":    {".service", `".service" has nothing before its suffix`},
		"an overlong name": {strings.Repeat("a", 250) + ".service", "a unit name of 258 bytes; want at most 255"},
		"the agent": {"node-cert-agent.service",
			`"node-cert-agent.service" is ours; the agent does not act on itself`},
		"the writer": {"node-cert-agent-writer.service",
			`"node-cert-agent-writer.service" is ours; the agent does not act on itself`},
		"a part of systemd":      {"systemd-journald.service", `"systemd-journald.service"` + carries},
		"the bus":                {"dbus-broker.service", `"dbus-broker.service"` + carries},
		"polkit":                 {"polkit.service", `"polkit.service"` + carries},
		"a homoglyph in Unicode": {"criо.service", `"criо.service" is not a unit name: it holds 'о'`},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			key := join("units", strings.ReplaceAll(tt.name, `\"`, `"`))
			refused(t, header+"units:\n  \""+tt.name+"\": {verb: reload}\n", "3: "+key+": "+tt.want)
		})
	}
}

func TestRefusedVerbsSayWhy(t *testing.T) {
	tests := map[string]string{
		"start": "start is never granted: whoever may start a unit can, on systemd 257, have a transient unit " +
			"run as root; want reload or try-restart",
		"stop": "stop is never granted: a stopped unit stays down if the agent dies; want reload or try-restart",
		"restart": "restart is only for node-cert-agent-update-ca-trust.service: it starts what the " +
			"administrator has stopped; want reload or try-restart",
		"enable":            "enable is never granted: what starts at boot is the image's matter; want reload or try-restart",
		"reload-or-restart": "want reload or try-restart",
		"Reload":            "want reload or try-restart",
	}
	for verb, want := range tests {
		refused(t, header+"units:\n  a.service:\n    verb: "+verb+"\n", "4: units.a.service.verb: "+want)
	}
	for _, verb := range []string{"reload", "try-restart"} {
		refused(t, header+"units:\n  "+updateCATrust+":\n    verb: "+verb+"\n", "4: units."+updateCATrust+
			".verb: want restart: it works by running, and runs only for that")
	}
	refused(t, header+"units: {"+updateCATrust+": {}}\n", "2: units."+updateCATrust+
		".verb: want restart: it works by running, and runs only for that")
	refused(t, header+"units:\n  a.service: {}\n", "3: units.a.service.verb: missing; want reload or try-restart")
	refused(t, header+"units: {a.service: {verb: reload, alsoAffects: [a.service]}}\n",
		"2: units.a.service.alsoAffects: lists the unit itself; name only the others")
	refused(t, header+"units: {a.service: {verb: reload, alsoAffects: [kubelet]}}\n",
		`2: units.a.service.alsoAffects: "kubelet" has no suffix such as .service; want the full name of the unit`)
}

func TestWhatCarriesTheHostCannotBeAcceptedAsAffectedEither(t *testing.T) {
	for name, want := range map[string]string{
		"node-cert-agent.service":       "is ours; the agent does not act on itself",
		updateCATrust:                   "is ours; the agent does not act on itself",
		"dbus.socket":                   "carries the host and the agent's own rights; it cannot be on the allowlist",
		"systemd-journald-audit.socket": "carries the host and the agent's own rights; it cannot be on the allowlist",
		"init.scope":                    "is systemd itself; it cannot be on the allowlist",
		"kubelet*":                      "is a pattern; name each unit in full",
	} {
		refused(t, header+"units: {a.service: {verb: reload, alsoAffects: ["+strconv.Quote(name)+"]}}\n",
			"2: units.a.service.alsoAffects: "+strconv.Quote(name)+" "+want)
	}
}

func TestTheSmallRulesHaveNoExceptions(t *testing.T) {
	for _, ok := range []string{updateCATrust, "a.service", "a@b.service", `a\x2db.service`, "A_b:c-1.2.service"} {
		if err := unitName(ok); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"/a/b", "/a/b", true}, {"/a/b", "/a/c", false}, {"/a/b", "/a/b/c", true}, {"/a/b", "/a/bc", false},
		{"/a/{name}/c", "/a/x/c", true}, {"/a/{name}/c", "/a/x/d", false}, {"/a/{name}/c", "/b/x/c", false},
		{"/a/p{sha256}.crt", "/a/p00.crt", true}, {"/a/p{sha256}.crt", "/a/p.crt", false},
		{"/a/{sha256}.crt", "/a/{sha256}.crt", true},
	} {
		if collide(tt.a, tt.b) != tt.want || collide(tt.b, tt.a) != tt.want {
			t.Errorf("collide(%s, %s) is not %v", tt.a, tt.b, tt.want)
		}
	}
}

func TestRefusedFiles(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  []string
	}{
		"a link to another file": {map[string]string{site: "-> x", etcDir + "x": header},
			[]string{site + ": not a regular file: a symbolic link"}},
		"a directory": {map[string]string{site + "/x": ""}, []string{site + ": not a regular file: a directory"}},
		"the suffix yml": {map[string]string{etcDir + "50-site.yml": header},
			[]string{strings.TrimSuffix(etcDir, "/") +
				`: "50-site.yml" would not be read: the names of fragments end in .yaml`}},
		"a link as the directory": {map[string]string{"etc/node-cert-agent/config.d": "-> other",
			"etc/node-cert-agent/other/x": ""},
			[]string{strings.TrimSuffix(etcDir, "/") + ": not a directory: a symbolic link"}},
		"too much text": {map[string]string{site: header + strings.Repeat("#", maxFile)},
			[]string{site + ": larger than 262144 bytes"}},
		"two broken fragments": {map[string]string{etcDir + "10.yaml": "a: 1", libDir + "20.yaml": "b: 1"}, []string{
			etcDir + "10.yaml:1: a: unknown key; want one of actions, apiVersion, bootstrap, coexist, configMap, " +
				"controllerConfig, files, identity, node, probe, profile, renewal, resync, trust, units, watch",
			libDir + "20.yaml:1: b: unknown key; want one of actions, apiVersion, bootstrap, coexist, configMap, " +
				"controllerConfig, files, identity, node, probe, profile, renewal, resync, trust, units, watch"}},
		"a profile that chooses a profile": {map[string]string{profileDir + "/standalone.yaml": header + "profile: other\n"},
			[]string{profileDir +
				"/standalone.yaml:2: profile: unknown key; want one of actions, apiVersion, bootstrap, coexist, configMap, " +
				"controllerConfig, files, identity, node, probe, renewal, resync, trust, units, watch"}},
		"a missing profile beside others": {map[string]string{profileDir + "/a.yaml": header, site: header + "profile: b\n"},
			[]string{site + `:2: profile: no profile "b"; want one of a, kubeadm, openshift, standalone`}},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			if have := problems(t, tt.files); !reflect.DeepEqual(have, tt.want) {
				t.Errorf("have %q\nwant %q", have, tt.want)
			}
		})
	}
}

func TestAPipeIsRefusedWithoutWaitingForAWriter(t *testing.T) {
	root := host(t, map[string]string{etcDir + "10.yaml": header})
	if err := syscall.Mkfifo(filepath.Join(root, site), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Load(Options{Root: root})
	if want := filepath.Join(root, site) + ": not a regular file: a device, pipe or socket"; err == nil ||
		err.Error() != want {
		t.Errorf("have %v, want %s", err, want)
	}
}

// fake is a file of any owner.
type fake struct {
	uid  uint32
	mode fs.FileMode
}

func (f fake) Name() string       { return "fake" }
func (f fake) Size() int64        { return 0 }
func (f fake) Mode() fs.FileMode  { return f.mode }
func (f fake) ModTime() time.Time { return time.Time{} }
func (f fake) IsDir() bool        { return f.mode.IsDir() }
func (f fake) Sys() any           { return &syscall.Stat_t{Uid: f.uid} }

func TestOnlyRootsFilesAreBelieved(t *testing.T) {
	me := uint32(os.Geteuid())
	other := me + 4711
	tests := map[string]struct {
		file  fake
		plain bool
		want  string
	}{
		"root's on the host":    {fake{0, 0o644}, false, ""},
		"another's on the host": {fake{other, 0o644}, false, "owned by uid"},
		"group-writable on the host": {fake{0, 0o664}, false,
			"writable by group or others (mode 0664): only root may change configuration"},
		"world-writable on the host":   {fake{0, fs.ModeDir | 0o757}, false, "writable by group or others (mode 0757)"},
		"root's mask on the host":      {fake{0, fs.ModeSymlink | 0o777}, false, ""},
		"another's mask on the host":   {fake{other, fs.ModeSymlink | 0o777}, false, "owned by uid"},
		"our own in plain mode":        {fake{me, 0o664}, true, ""},
		"root's in plain mode":         {fake{0, 0o644}, true, ""},
		"another's file in plain mode": {fake{other, 0o644}, true, "owned by uid"},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			err := trusted(tt.file, tt.plain)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("have %v, want %q", err, tt.want)
			}
		})
	}
}

func TestOnTheHostAFragmentThatOthersMayWriteIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "config.d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "10.yaml"), []byte(header), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "10.yaml"), 0o666); err != nil {
		t.Fatal(err)
	}
	// Whoever runs the test: root is refused for the file's mode, others for the owner.
	_, err := Load(Options{Root: "/", Dirs: []string{dir}})
	if err == nil || !strings.HasPrefix(err.Error(), dir) {
		t.Errorf("have %v", err)
	}
}

func TestAPullSecretHasNoConsumersToAsk(t *testing.T) {
	refused(t, header+"files:\n  internalRegistryPullSecret:\n    enabled: true\n    verify: [{kind: serving, address: "+
		"\"127.0.0.1:1\"}]\n",
		"5: files.internalRegistryPullSecret.verify: the file holds no certificates")
}
