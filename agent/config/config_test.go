// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

const header = "apiVersion: config.node-cert-agent.io/v1alpha1\n"

const (
	etcDir = "etc/node-cert-agent/config.d/"
	runDir = "run/node-cert-agent/config.d/"
	libDir = "usr/lib/node-cert-agent/config.d/"
)

// host lays files out beneath a new root; "-> target" makes a link.
func host(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func load(t testing.TB, files map[string]string) Settings {
	t.Helper()
	s, err := Load(Options{Root: host(t, files)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// builtinLine is a place in a built-in profile, where lines move with every comment.
var builtinLine = regexp.MustCompile(`(builtin:\w+\.yaml):\d+`)

// problems are the lines of Load's error, with the root taken out.
func problems(t testing.TB, files map[string]string) []string {
	t.Helper()
	root := host(t, files)
	s, err := Load(Options{Root: root})
	if err == nil {
		return nil
	}
	if !reflect.DeepEqual(s, Settings{}) {
		t.Errorf("settings beside an error: %+v", s)
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		t.Fatalf("not a joined error: %v", err)
	}
	var lines []string
	for _, e := range joined.Unwrap() {
		if one := (*Error)(nil); !errors.As(e, &one) {
			t.Errorf("not an *Error: %v", e)
		}
		line := strings.ReplaceAll(e.Error(), root+"/", "")
		lines = append(lines, builtinLine.ReplaceAllString(line, "$1:LINE"))
	}
	return lines
}

func TestABareHostHasTheStandaloneProfile(t *testing.T) {
	s := load(t, nil)
	want := Settings{
		Profile: "standalone",
		ControllerConfig: ControllerConfig{"node-cert-agent.io", "v1alpha1", "controllerconfigs",
			"machine-config-controller"},
		Actions: actions{BatchWindow: 2 * time.Second, RandomizedDelay: 10 * time.Minute, Timeout: 90 * time.Second},
		Resync:  10 * time.Minute,
		Watch: watch{RetryJitter: 3 * time.Second, RetryMax: 30 * time.Second,
			IdleTimeout: 150 * time.Second, Timeout: 30 * time.Minute},
		ProbeTimeout: 90 * time.Second,
		Consume:      "delete",
		Identity: identity{Lifetime: 168 * time.Hour, PollInterval: 10 * time.Second, IdlePollInterval: time.Hour,
			ApprovalPollMax: time.Minute,
			CheckInterval:   10 * time.Minute,
			SuspectAfter:    2 * time.Minute, DeniedMin: 5 * time.Minute, DeniedMax: time.Hour},
		Renewal: renewal{Mode: "report", Restart: true, DegradedBelow: 168 * time.Hour, Timeout: 2 * time.Minute, RenewBefore: 720 * time.Hour, WarnBefore: 504 * time.Hour, Interval: 5 * time.Minute},
		Files:   []string{"builtin:standalone.yaml"},
		Digest:  s.Digest,
	}
	want.Policy.Trust = plan.Trust{Hold: time.Hour, Source: plan.RootCAData}
	for id, file := range map[plan.Field]string{
		plan.KubeAPIServerServingCAData:  "/etc/kubernetes/kubelet-ca.crt",
		plan.CloudProviderCAData:         "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
		plan.RootCAData:                  "/etc/kubernetes/ca.crt",
		plan.AdditionalTrustBundle:       "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
		plan.ImageRegistryBundleData:     "/etc/docker/certs.d/{name}/ca.crt",
		plan.ImageRegistryBundleUserData: "/etc/docker/certs.d/{name}/ca.crt",
	} {
		want.Policy.Files = append(want.Policy.Files, plan.FileSpec{Field: id, Path: file, Mode: 0o644})
	}
	slices.SortFunc(want.Policy.Files, func(a, b plan.FileSpec) int {
		return slices.Index(plan.Fields(), a.Field) - slices.Index(plan.Fields(), b.Field)
	})
	want.Policy.Files[0].Verify = []liveness.Consumer{{Kind: liveness.ClientCA, Address: "127.0.0.1:10250",
		Mismatch: liveness.Unknown}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("have %+v\nwant %+v", s, want)
	}
	if s.Digest == (plan.Digest{}) {
		t.Error("no digest")
	}
}

func TestTheBaseProfileSetsEveryKeyWithAFixedName(t *testing.T) {
	base, errs := parseAll([]source{builtinProfiles()["standalone"]}, profileRules)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, key := range leaves("", profileRules) {
		if _, ok := base[0][key]; !ok {
			t.Errorf("%s is not set", key)
		}
	}
}

// leaves lists the key paths of the format that have fixed names.
func leaves(key string, r rule) (all []string) {
	switch r := r.(type) {
	case leaf:
		return []string{key}
	case branch:
		for name, below := range r {
			all = append(all, leaves(join(key, name), below)...)
		}
	}
	return all
}

func TestAFragmentSetsEveryKey(t *testing.T) {
	s := load(t, map[string]string{etcDir + "50.yaml": header + `
profile: standalone
node: {name: worker-1.example.org}
controllerConfig: {group: machineconfiguration.openshift.io, version: v1, resource: controllerconfigs, name: other}
files:
  kubeAPIServerServingCAData: {path: /srv/a.crt, mode: "0600", owner: "0:990", followLink: true, validate: strict, verify: []}
  cloudProviderCAData: {enabled: false}
  rootCAData: {onChange: [b.service, a.service], verify: [{kind: apiserver, address: "[::1]:6443", mismatch: unknown}, {kind: clientCA, address: "127.0.0.1:6443", others: true}]}
  additionalTrustBundle: {path: "/usr/local/share/ca-certificates/{sha256}.crt", owner: root:root}
  imageRegistryBundleData: {enabled: false}
  imageRegistryBundleUserData: {path: "/etc/containers/certs.d/{name}/ca.crt"}
  kubeconfigCAData: {enabled: true, path: /srv/kubeconfig, followLink: true, onChange: [a.service], validate: strict}
  internalRegistryPullSecret: {enabled: true, path: /srv/pull.json, mode: "0400", owner: "0:990"}
configMap: {namespace: ns, name: other, key: ca.pem}
units:
  b.service: {verb: reload, enabled: true}
  a.service: {verb: try-restart, alsoAffects: [a.socket, kubelet.service]}
  c.service: {verb: reload, enabled: false}
  node-cert-agent-update-ca-trust.service: {verb: restart}
actions: {batchWindow: 0s, randomizedDelay: 0, timeout: 1m30s}
probe: {timeout: 0s}
trust: {holdRemovals: 10m, source: kubeAPIServerServingCAData}
resync: 1s
watch: {retryJitter: 1ms, retryMax: 100ms, idleTimeout: 1s, timeout: 24h}
bootstrap: {consume: mark-used, kubeletIdentity: true, pollInterval: 1s, idlePollInterval: 1m, followHint: always, pins: ["sha256:abababababababababababababababababababababababababababababababab"]}
renewal: {mode: renew, restart: never, throughEtcd: true, degradedBelow: 5s, timeout: 6s, lifetime: 4s, key: reuse, renewBefore: 1s, warnBefore: 2s, interval: 3s}
identity: {lifetime: 10m, approvalPollMax: 2s, checkInterval: 3s, suspectAfter: 4s, deniedMin: 5s, deniedMax: 6s}
`})
	want := Settings{
		Profile:          "standalone",
		NodeName:         "worker-1.example.org",
		ControllerConfig: ControllerConfig{"machineconfiguration.openshift.io", "v1", "controllerconfigs", "other"},

		ConfigMap: ConfigMap{"ns", "other", "ca.pem"},
		Policy: unitplan.Policy{
			Policy: plan.Policy{
				Files: []plan.FileSpec{
					{Field: plan.KubeAPIServerServingCAData, Path: "/srv/a.crt", Mode: 0o600, GID: 990, FollowLink: true,
						Strict: true},
					{Field: plan.RootCAData, Path: "/etc/kubernetes/ca.crt", Mode: 0o644, OnChange: []string{"b.service", "a.service"},
						Verify: []liveness.Consumer{{Kind: liveness.APIServer, Address: "[::1]:6443", Mismatch: liveness.Unknown},
							{Kind: liveness.ClientCA, Address: "127.0.0.1:6443", Others: true, Mismatch: liveness.Stale}}},
					{Field: plan.KubeconfigCAData, Path: "/srv/kubeconfig", FollowLink: true, OnChange: []string{"a.service"},
						Strict: true},
					{Field: plan.AdditionalTrustBundle, Path: "/usr/local/share/ca-certificates/{sha256}.crt", Mode: 0o644},
					{Field: plan.ImageRegistryBundleUserData, Path: "/etc/containers/certs.d/{name}/ca.crt", Mode: 0o644},
					{Field: plan.InternalRegistryPullSecret, Path: "/srv/pull.json", Mode: 0o400, GID: 990},
				},
				Trust: plan.Trust{Hold: 10 * time.Minute, Source: plan.KubeAPIServerServingCAData},
			},
			Units: []unitplan.Unit{
				{Name: "a.service", Verb: unitplan.TryRestart, AlsoAffects: []string{"a.socket", "kubelet.service"}},
				{Name: "b.service", Verb: unitplan.Reload},
				{Name: updateCATrust, Verb: unitplan.Restart},
			},
		},
		Actions: actions{Timeout: 90 * time.Second},
		Resync:  time.Second,
		Watch: watch{RetryJitter: time.Millisecond, RetryMax: 100 * time.Millisecond,
			IdleTimeout: time.Second, Timeout: 24 * time.Hour},
		Consume:         "mark-used",
		KubeletIdentity: true,
		FollowHint:      true,
		Pins:            []string{"sha256:abababababababababababababababababababababababababababababababab"},
		Identity: identity{Lifetime: 10 * time.Minute, PollInterval: time.Second, IdlePollInterval: time.Minute,
			ApprovalPollMax: 2 * time.Second,
			CheckInterval:   3 * time.Second,
			SuspectAfter:    4 * time.Second, DeniedMin: 5 * time.Second, DeniedMax: 6 * time.Second},
		Renewal: renewal{Mode: "renew", ThroughEtcd: true, DegradedBelow: 5 * time.Second, Timeout: 6 * time.Second, Lifetime: 4 * time.Second, ReuseKey: true, RenewBefore: time.Second, WarnBefore: 2 * time.Second, Interval: 3 * time.Second},
		Files:   s.Files,
		Digest:  s.Digest,
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("have %+v\nwant %+v", s, want)
	}
}

func TestOtherWritersAreKnownToTheFieldsThatTheyWrite(t *testing.T) {
	s := load(t, map[string]string{etcDir + "50.yaml": header + "coexist: [machine-config-daemon, node-ca]\n"})
	for _, r := range s.Policy.Files {
		want := []plan.Writer{plan.MachineConfigDaemon}
		if r.Field.List() {
			want = append(want, plan.NodeCA)
		}
		if !slices.Equal(r.Beside, want) {
			t.Errorf("%s is beside %v, want %v", r.Field, r.Beside, want)
		}
	}
	if !s.Policy.Trust.Mirror {
		t.Error("removals are held beside writers that hold nothing")
	}
	if alone := load(t, nil); alone.Policy.Trust.Mirror || alone.Policy.Files[0].Beside != nil {
		t.Errorf("alone there is %+v", alone.Policy)
	}
}

func TestLayers(t *testing.T) {
	name := func(n string) string { return header + "node: {name: " + n + "}\n" }
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"etc beats run and lib under one name": {map[string]string{
			libDir + "10.yaml": name("lib"), runDir + "10.yaml": name("run"), etcDir + "10.yaml": name("etc")}, "etc"},
		"run beats lib under one name": {map[string]string{
			libDir + "10.yaml": name("lib"), runDir + "10.yaml": name("run")}, "run"},
		"the later name wins wherever it lies": {map[string]string{
			libDir + "90.yaml": name("lib"), runDir + "50.yaml": name("run"), etcDir + "10.yaml": name("etc")}, "lib"},
		"other keys of an earlier fragment stay": {map[string]string{
			etcDir + "10.yaml": name("etc"), etcDir + "20.yaml": header + "resync: 1m\n"}, "etc"},
		"a link to /dev/null masks": {map[string]string{
			libDir + "20.yaml": name("lib"), etcDir + "20.yaml": "-> /dev/null", etcDir + "10.yaml": name("etc")}, "etc"},
		"an empty file masks": {map[string]string{
			libDir + "20.yaml": name("lib"), runDir + "20.yaml": "", etcDir + "10.yaml": name("etc")}, "etc"},
		"a file of comments masks": {map[string]string{
			libDir + "20.yaml": name("lib"), runDir + "20.yaml": "# off\n\n", etcDir + "10.yaml": name("etc")}, "etc"},
		"a masked file may be broken": {map[string]string{
			libDir + "20.yaml": "{{{", etcDir + "20.yaml": "-> /dev/null"}, ""},
		"hidden files and other suffixes do not count": {map[string]string{
			etcDir + ".20.yaml": name("hidden"), etcDir + "20.yaml.bak": name("backup"), etcDir + "README": "words"}, ""},
		"a profile on the host changes defaults": {map[string]string{
			profileDir + "/standalone.yaml": name("profile")}, "profile"},
		"a fragment beats the profile": {map[string]string{
			profileDir + "/site.yaml": name("profile"), etcDir + "10.yaml": "profile: site\n" + name("etc")}, "etc"},
		"a profile that only the host has can be chosen": {map[string]string{
			profileDir + "/site.yaml": name("profile"), etcDir + "10.yaml": header + "profile: site\n"}, "profile"},
		"a broken profile that is not chosen is not read": {map[string]string{
			profileDir + "/other.yaml": "{{{", etcDir + "10.yaml": name("etc")}, "etc"},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			if s := load(t, tt.files); s.NodeName != tt.want {
				t.Errorf("have %q, want %q", s.NodeName, tt.want)
			}
		})
	}
}

func TestGivenDirectoriesReplaceTheUsualOnes(t *testing.T) {
	root := host(t, map[string]string{
		etcDir + "90.yaml": header + "node: {name: etc}\n",
		"a/10.yaml":        header + "node: {name: a}\n",
		"b/10.yaml":        header + "node: {name: b}\n",
	})
	s, err := Load(Options{Root: root, Dirs: []string{root + "/a", root + "/b/"}})
	if err != nil || s.NodeName != "b" {
		t.Errorf("have %q, %v; want b", s.NodeName, err)
	}
	_, err = Load(Options{Root: root, Dirs: []string{root + "/c"}})
	if want := root + "/c: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("have %v, want %s", err, want)
	}
}

func TestAListIsOneValue(t *testing.T) {
	s := load(t, map[string]string{
		etcDir + "10.yaml": header + "units: {a.service: {verb: reload, alsoAffects: [b.service, c.service]}}\n",
		etcDir + "20.yaml": header + "units: {a.service: {alsoAffects: [d.service]}}\n",
	})
	want := []unitplan.Unit{{Name: "a.service", Verb: unitplan.Reload, AlsoAffects: []string{"d.service"}}}
	if !reflect.DeepEqual(s.Policy.Units, want) {
		t.Errorf("have %+v", s.Policy.Units)
	}
}

func TestTheDigestFollowsEveryByteThatWasRead(t *testing.T) {
	dir := host(t, map[string]string{etcDir + "10.yaml": header, etcDir + "20.yaml": header})
	digest := func() plan.Digest {
		t.Helper()
		s, err := Load(Options{Root: dir})
		if err != nil {
			t.Fatal(err)
		}
		return s.Digest
	}
	first := digest()
	if digest() != first {
		t.Error("two reads of the same files differ")
	}
	if err := os.WriteFile(filepath.Join(dir, etcDir, "20.yaml"), []byte(header+"# remark\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	second := digest()
	if err := os.Rename(filepath.Join(dir, etcDir, "20.yaml"), filepath.Join(dir, etcDir, "30.yaml")); err != nil {
		t.Fatal(err)
	}
	if third := digest(); first == second || second == third {
		t.Errorf("changes not seen: %v %v %v", first, second, third)
	}
}

func TestWatchListsWhatLoadReads(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{}, "[/usr/share/node-cert-agent/profiles /usr/lib/node-cert-agent/config.d /run/node-cert-agent/config.d " +
			"/etc/node-cert-agent/config.d]"},
		{Options{Root: "/x"}, "[/x/usr/share/node-cert-agent/profiles /x/usr/lib/node-cert-agent/config.d " +
			"/x/run/node-cert-agent/config.d /x/etc/node-cert-agent/config.d]"},
		{Options{Root: "/", Dirs: []string{"/a/b"}}, "[/usr/share/node-cert-agent/profiles /a/b]"},
	} {
		if have := fmt.Sprint(tt.o.Watch()); have != tt.want {
			t.Errorf("%+v: have %s", tt.o, have)
		}
	}
}

func example(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../packaging/config.d/10-example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheExampleChangesNothingAsItStands(t *testing.T) {
	bare, s := load(t, nil), load(t, map[string]string{etcDir + "10-example.yaml": example(t)})
	if n := len(s.Files); n != 2 || !strings.HasSuffix(s.Files[1], "/10-example.yaml") {
		t.Errorf("it was read from %q", s.Files)
	}
	s.Digest, s.Files = bare.Digest, bare.Files
	if !reflect.DeepEqual(s, bare) {
		t.Errorf("have %+v\nwant %+v", s, bare)
	}
}

func TestTheExampleShowsEveryKeyAndIsValidWithoutItsCommentSigns(t *testing.T) {
	text := regexp.MustCompile(`(?m)^#( *[A-Za-z])`).ReplaceAllStringFunc(example(t), func(s string) string {
		// Prose has one space after the sign, keys have none or an even number.
		if n := strings.Count(s, " "); n%2 == 0 {
			return s[1:]
		}
		return s
	})
	s := load(t, map[string]string{etcDir + "10-example.yaml": text})
	if len(s.Policy.Units) != 1 || s.NodeName == "" {
		t.Errorf("comment signs were not removed: %+v", s)
	}
	layers, _ := parseAll([]source{{"example", []byte(text)}}, fragmentRules)
	shown := map[string]bool{}
	for key := range layers[0] {
		shown[regexp.MustCompile(`^(files|units)\.(crio\.service|\w+)\.`).ReplaceAllString(key, "$1.*.")] = true
	}
	unit := profileRules["units"].(named).each
	for _, key := range append(leaves("", fragmentRules), leaves("units.*", unit)...) {
		key = regexp.MustCompile(`^files\.\w+\.`).ReplaceAllString(key, "files.*.")
		if !shown[key] {
			t.Errorf("the example does not show %s", key)
		}
	}
}

func FuzzLoadNeverPanicsAndAlwaysNamesThePlace(f *testing.F) {
	f.Add(header)
	f.Add(header + "files: {rootCAData: {path: /etc/x}}\nunits: {a.service: {verb: reload}}\n")
	f.Add(header + "a: &x [*x]\n")
	f.Add("? [a, b]\n: {<<: {}}\n---\n!!binary x\n")
	f.Fuzz(func(t *testing.T, text string) {
		layers, errs := parseAll([]source{{"fuzz", []byte(text)}}, fragmentRules)
		base, _ := parseAll([]source{builtinProfiles()["standalone"]}, profileRules)
		if len(errs) == 0 {
			var s Settings
			if s, errs = merge(append(base, layers...)).settings(); len(errs) == 0 {
				for _, r := range s.Policy.Files {
					if checkFile(r.Field, r.Path) != nil || r.Mode&0o7022 != 0 {
						t.Errorf("accepted %+v", r)
					}
				}
			}
		}
		for _, e := range errs {
			if one := (*Error)(nil); !errors.As(e, &one) || one.File == "" || strings.ContainsAny(one.Error(), "\n\x00") {
				t.Errorf("not one readable line with a file: %q", e)
			}
		}
	})
}

func TestAnAnnouncedClusterIsFollowedWherePinsConfineIt(t *testing.T) {
	const pin = "sha256:abababababababababababababababababababababababababababababababab"
	for fragment, want := range map[string]bool{
		"":                                   false,
		"bootstrap: {pins: [" + pin + "]}\n": true,
		"bootstrap: {followHint: always}\n":  true,
		"bootstrap: {followHint: pinned}\n":  false,
		"bootstrap: {followHint: never, pins: [" + pin + "]}\n":  false,
		"bootstrap: {followHint: pinned, pins: [" + pin + "]}\n": true,
	} {
		if s := load(t, map[string]string{etcDir + "10.yaml": header + fragment}); s.FollowHint != want {
			t.Errorf("%q: %v", fragment, s.FollowHint)
		}
	}
}
