// SPDX-License-Identifier: Apache-2.0

//go:build real

package host_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
	"github.com/node-cert-agent/node-cert-agent/agent/units"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// releases are the two generations of systemd that the allowlist has to hold on.
var releases = map[string]host.Release{"same": host.Same, "newer": host.Newer}

const updateCATrust = "node-cert-agent-update-ca-trust.service"

// service is a unit that can be reloaded, with more lines for its [Unit] section.
func service(lines ...string) host.File {
	return host.File{Data: []byte("[Unit]\n" + strings.Join(lines, "\n") + "\n" + target + "PrivateMounts=yes\n")}
}

// bootServices boots a host with the product's tree and these services, by name.
func bootServices(t *testing.T, r host.Release, services map[string]host.File, files map[string]host.File) *host.Host {
	t.Helper()
	all := maps.Clone(files)
	if all == nil {
		all = map[string]host.File{}
	}
	for name, f := range services {
		all["/etc/systemd/system/"+name] = f
	}
	h := boot(t, host.Options{Name: "node", Release: r, Trees: []string{"../../systemd", "../../deb/tree"}, Files: all})
	t.Logf("systemd %s", run(t, h, "systemctl", "--version"))
	return h
}

// bus is the host's, as root.
func bus(t *testing.T, h *host.Host) *units.Conn {
	c := units.New("unix:path=" + h.Path("/run/dbus/system_bus_socket"))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func show(t *testing.T, h *host.Host, property, unit string) string {
	t.Helper()
	return run(t, h, "systemctl", "show", "-P", property, unit)
}

const (
	managerPath   = "/org/freedesktop/systemd1"
	managerObject = "org.freedesktop.systemd1 " + managerPath + " org.freedesktop.systemd1.Manager "
	loginObject   = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager "
)

// unitCalls are all that can be asked of a unit, by the method and its arguments after the name.
var unitCalls = map[string]string{
	"StartUnit": "ss UNIT replace", "StopUnit": "ss UNIT replace", "ReloadUnit": "ss UNIT replace",
	"RestartUnit":    "ss UNIT replace",
	"TryRestartUnit": "ss UNIT replace", "ReloadOrRestartUnit": "ss UNIT replace",
	"ReloadOrTryRestartUnit": "ss UNIT replace",
	"StartUnitReplace":       "sss UNIT UNIT replace", "EnqueueUnitJob": "sss UNIT reload replace",
	"KillUnit":        "ssi UNIT all 9",
	"QueueSignalUnit": "ssii UNIT all 34 0", "FreezeUnit": "s UNIT", "ThawUnit": "s UNIT", "CleanUnit": "sas UNIT 1 all",
	"ResetFailedUnit":   "s UNIT",
	"SetUnitProperties": "sba(sv) UNIT true 1 Description s changed", "BindMountUnit": "sssbb UNIT /etc /mnt false false",
	"AttachProcessesToUnit": "ssau UNIT / 1 1", "MaskUnitFiles": "asbb 1 UNIT true true",
	"DisableUnitFiles": "asb 1 UNIT true",
	"EnableUnitFiles":  "asbb 1 UNIT true true", "PresetUnitFiles": "asbb 1 UNIT true true", "RefUnit": "s UNIT",
	"StartTransientUnit": "ssa(sv)a(sa(sv)) UNIT replace 1 ExecStart a(sasb) 1 /bin/true 1 true false 0",
}

// objectCalls are what can be asked of a unit's own object, by the method and its arguments.
var objectCalls = map[string]string{
	"Start": "s replace", "Stop": "s replace", "Reload": "s replace", "Restart": "s replace", "TryRestart": "s replace",
	"ReloadOrRestart":    "s replace",
	"ReloadOrTryRestart": "s replace", "EnqueueJob": "ss reload replace", "Kill": "si all 9",
	"QueueSignal": "sii all 34 0", "ResetFailed": "",
	"SetProperties": "ba(sv) true 1 Description s changed", "Ref": "", "Clean": "as 1 all", "Freeze": "", "Thaw": "",
}

// callsOf are all calls that can be asked of a unit.
func callsOf(unit string) map[string]bool {
	calls := map[string]bool{}
	for method, args := range unitCalls {
		calls[managerObject+method+" "+strings.ReplaceAll(args, "UNIT", unit)] = true
	}
	for method, args := range objectCalls {
		calls["org.freedesktop.systemd1 "+managerPath+"/unit/"+escaped(unit)+" org.freedesktop.systemd1.Unit "+method+" "+
			args] = true
	}
	return calls
}

// escaped is a name as the last element of an object path has it (sd_bus_path_encode(3)).
func escaped(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// otherCalls are what a person with rights can ask the host for.
var otherCalls = []string{
	managerObject + "Reload", managerObject + "Reexecute", managerObject + "Reboot", managerObject + "PowerOff",
	managerObject + "Halt",
	managerObject + "Exit", managerObject + "ResetFailed", managerObject + "ClearJobs", managerObject + "CancelJob u 1",
	managerObject + "SetEnvironment as 1 A=b", managerObject + "SetDefaultTarget sb rescue.target true",
	managerObject + "SetLogLevel s debug",
	managerObject + "StartUnit ss reboot.target replace", managerObject +
		"LinkUnitFiles asbb 1 /run/node-cert-agent/x.service true true",
	managerObject + "StartTransientUnit ssa(sv)a(sa(sv)) ghost.service replace 1 ExecStart a(sasb) 1 /bin/true 1 true " +
		"false 0",
	loginObject + "Reboot b false", loginObject + "PowerOff b false", loginObject + "Halt b false",
	"org.freedesktop.hostname1 /org/freedesktop/hostname1 org.freedesktop.hostname1 SetHostname sb changed false",
}

// granted asks with busctl(1) as a user, and tells whether the answer was no refusal.
func granted(t *testing.T, h *host.Host, user, call string) bool {
	t.Helper()
	// one call too many is granted, and there is no host any more
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := h.RunAs(ctx, user, append([]string{"busctl", "--timeout=20", "call"}, strings.Fields(call)...)...)
	var failed *host.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if failed == nil {
		return true
	}
	for _, no := range []string{"Access denied", "Permission denied", "Rejected send message",
		"nteractive authentication required", "Unknown method",
		// What systemd finds out before it asks who is allowed.
		"No job queued", "Process migration not available", "Job 1 does not exist",
		"not running in private mount namespace"} {
		if strings.Contains(failed.Stderr, no) {
			return false
		}
	}
	t.Errorf("%s: %s: neither granted nor refused: %s", user, call, failed.Stderr)
	return true
}

func TestExactlyTheAllowlistSucceeds(t *testing.T) {
	for name, release := range releases {
		t.Run(name, func(t *testing.T) { theMatrix(t, release) })
	}
}

const (
	quoted     = `quo\x22te.service`
	theAllowed = `apiVersion: config.node-cert-agent.io/v1alpha1
units:
  reloaded.service: {verb: reload}
  restarted.service: {verb: try-restart}
  inst@1.service: {verb: reload}
  'quo\x22te.service': {verb: reload}
  node-cert-agent-update-ca-trust.service: {verb: restart}
  missing.service: {verb: reload}
  alias.service: {verb: reload}
  masked.service: {verb: reload}
`
)

// noted is a service that notes what it is made to do.
func noted(lines ...string) host.File {
	return host.File{Data: []byte("[Unit]\n" + strings.Join(lines, "\n") +
		"\n[Service]\nExecStartPre=/bin/sh -c 'echo start %n >>/run/acts'\nExecStart=/bin/sleep infinity\n" +
		"ExecReload=/bin/sh -c 'echo reload %n >>/run/acts'\nPrivateMounts=yes\n")}
}

// theMatrix is every unit by every way that there is: through the reloader, as the agent's user, as another and as
// root; and over D-Bus, where the agent's user gets nothing, and nobody else.
func theMatrix(t *testing.T, release host.Release) {
	h := bootReloader(t, release, theAllowed, map[string]host.File{"reloaded.service": noted(),
		"restarted.service": noted(), "foreign.service": noted(),
		"inst@.service": noted(), quoted: noted()}, map[string]host.File{"/usr/lib/systemd/system/masked.service": noted()})
	run(t, h, "ln", "-s", "foreign.service", "/etc/systemd/system/alias.service") // of one that is not allowed
	run(t, h, "systemctl", "daemon-reload")
	running := []string{"reloaded.service", "restarted.service", "foreign.service", "inst@1.service", "inst@2.service",
		quoted, "masked.service"}
	run(t, h, append([]string{"systemctl", "start", updateCATrust}, running...)...)
	run(t, h, "systemctl", "mask", "masked.service")
	foreign := func() string {
		return run(t, h, "systemctl", "show", "-p",
			"InvocationID,ActiveState,Description,UnitFileState,FreezerState,LoadState", "foreign.service", "inst@2.service")
	}
	before := foreign()
	acts := func() string { return run(t, h, "sh", "-c", "cat /run/acts 2>/dev/null; rm -f /run/acts") }
	acts()
	allowed := map[string]struct{ verb, act string }{"reloaded.service": {"reload", "reload reloaded.service"},
		"restarted.service": {"try-restart", "start restarted.service"},
		"inst@1.service":    {"reload", "reload inst@1.service"}, quoted: {"reload", "reload quox22te.service"},
		updateCATrust: {"restart", ""}}
	all := append(running, updateCATrust, "systemd-journald.service", "alias.service", "missing.service", "dbus.service",
		"reboot.target", "")
	for _, user := range []string{"node-cert-agent", "root", "daemon"} {
		for _, unit := range all {
			a, ok := allowed[unit]
			ok = ok && user != "daemon"
			verb := cmp.Or(a.verb, "reload")
			if user == "root" && verb != "reload" {
				continue // it would come too soon after the agent's
			}
			var err error
			wait.For(t, "a distance to the last start", func() bool {
				_, err = h.RunAs(t.Context(), user, "act", verb, unit)
				return err == nil || !strings.Contains(err.Error(), "start limit")
			})
			if (err == nil) != ok {
				t.Errorf("%s: %s %s: %v", user, verb, unit, err)
			}
			did := acts()
			if want := a.act; ok && did != want || !ok && did != "" {
				t.Errorf("%s: %s %s: the units noted %q", user, verb, unit, did)
			}
		}
	}
	for _, unit := range []string{"reloaded.service", "foreign.service", "inst@1.service", quoted, updateCATrust,
		"systemd-journald.service", "alias.service"} {
		for call := range callsOf(unit) {
			for _, user := range []string{"node-cert-agent", "daemon"} {
				if granted(t, h, user, call) {
					t.Errorf("%s may call %s", user, call)
				}
			}
		}
	}
	for _, user := range []string{"node-cert-agent", "daemon"} {
		for _, call := range otherCalls {
			if granted(t, h, user, call) {
				t.Errorf("%s may %s", user, call)
			}
		}
	}
	if after := foreign(); after != before || acts() != "" {
		t.Errorf("units that are not on the allowlist changed: %s\nbecame %s", before, after)
	}
}

// invocations are the runs of units: those that were acted on have another one.
func invocations(t *testing.T, h *host.Host, names []string) map[string]string {
	t.Helper()
	runs := map[string]string{}
	for _, n := range names {
		runs[n] = show(t, h, "InvocationID", n)
	}
	return runs
}

func TestAffectedIsWhatSystemdReallyActsOn(t *testing.T) {
	for name, release := range releases {
		t.Run(name, func(t *testing.T) {
			log := func(name string, lines ...string) host.File {
				return host.File{Data: []byte("[Unit]\n" + strings.Join(lines, "\n") +
					"\n[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/touch /run/reloaded-" + name + "\n")}
			}
			services := map[string]host.File{
				"crio.service":      log("crio", "PropagatesReloadTo=first.service"),
				"kubelet.service":   log("kubelet", "Requires=crio.service", "After=crio.service"),
				"bound.service":     log("bound", "BindsTo=kubelet.service"),
				"requisite.service": log("requisite", "Requisite=crio.service", "After=crio.service"),
				"part.service":      log("part", "PartOf=bound.service"),
				"wants.service":     log("wants", "Wants=crio.service", "After=crio.service"),
				"after.service":     log("after", "After=crio.service"),
				"stopped.service":   log("stopped", "StopPropagatedFrom=crio.service"),
				"first.service":     log("first"),
				"second.service":    log("second", "ReloadPropagatedFrom=first.service"),
			}
			h := bootServices(t, release, services, nil)
			names := slices.Sorted(maps.Keys(services))
			run(t, h, append([]string{"systemctl", "start"}, names...)...)
			c := bus(t, h)
			for _, verb := range []unitplan.Verb{unitplan.TryRestart, unitplan.Reload} {
				u := unitplan.Unit{Name: "crio.service", Verb: verb}
				seen, err := c.Look(t.Context(), u)
				if err != nil {
					t.Fatal(err)
				}
				predicted := seen.Affected
				before := invocations(t, h, names)
				if _, err := c.Act(t.Context(), u); err != nil {
					t.Fatal(err)
				}
				// Jobs of the others may still run.
				run(t, h, "sh", "-c", "while systemctl list-jobs --no-legend | grep -q service; do :; done")
				var acted []string
				for n, id := range invocations(t, h, names) {
					_, err := h.Run(t.Context(), "test", "-e", "/run/reloaded-"+strings.TrimSuffix(n, ".service"))
					if n != u.Name && (id != before[n] || verb == unitplan.Reload && err == nil) {
						acted = append(acted, n)
					}
				}
				if release == host.Same && verb == unitplan.TryRestart && !slices.Contains(acted, "stopped.service") {
					acted = append(acted, "stopped.service") // predicted for the systemd of tomorrow
				}
				if slices.Sort(acted); !slices.Equal(acted, predicted) || len(acted) < 2 {
					t.Errorf("%s crio.service: systemd acted on %q, predicted was %q", verb, acted, predicted)
				}
			}
		})
	}
}

func TestARealSystemdSaysWhatIsThere(t *testing.T) {
	for name, release := range releases {
		t.Run(name, func(t *testing.T) {
			h := bootServices(t, release, map[string]host.File{
				"a.service": service("StartLimitBurst=3", "StartLimitIntervalSec=20"),
				"slow.service": {Data: []byte("[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/sh -c 'read line " +
					"</run/slow'\n")},
				"once.service":  {Data: []byte("[Service]\nType=oneshot\nExecStart=/bin/touch /run/once\n")},
				"never.service": {Data: []byte("[Service]\nType=oneshot\nExecStart=/bin/false\n")},
			}, map[string]host.File{"/usr/lib/systemd/system/masked.service": service()})
			run(t, h, "systemctl", "start", "a.service", "masked.service", "slow.service")
			run(t, h, "systemctl", "mask", "masked.service")
			run(t, h, "mkfifo", "/run/slow")
			c := bus(t, h)
			state := func(name string) unitplan.State {
				t.Helper()
				s, err := c.Look(t.Context(), unitplan.Unit{Name: name})
				if err != nil {
					t.Fatal(err)
				}
				return s.State
			}
			if s := state("a.service"); !s.Exists || !s.Active || s.Busy || len(s.Invocation) != 32 || s.StartBurst != 3 ||
				s.StartInterval != 20*time.Second || time.Since(s.Since) > time.Hour {
				t.Errorf("an active unit is %+v", s)
			}
			run(t, h, "ln", "-s", "a.service", "/etc/systemd/system/alias.service")
			run(t, h, "systemctl", "daemon-reload")
			for _, name := range []string{"a.service", "alias.service"} {
				if s, err := c.Look(t.Context(), unitplan.Unit{Name: name}); err != nil || s.Name != "a.service" {
					t.Errorf("%s is %q, %v", name, s.Name, err)
				}
			}
			for _, none := range []string{"masked.service", "ghost.service"} {
				if s := state(none); s != (unitplan.State{}) {
					t.Errorf("%s is %+v", none, s)
				}
			}
			ended := make(chan error, 1)
			go func() {
				_, err := c.Act(t.Context(), unitplan.Unit{Name: "slow.service", Verb: unitplan.Reload})
				ended <- err
			}()
			wait.For(t, "the job", func() bool { return state("slow.service").Busy })
			run(t, h, "sh", "-c", "echo done >/run/slow")
			if err := <-ended; err != nil || state("slow.service").Busy {
				t.Errorf("a slow reload: %v, %+v", err, state("slow.service"))
			}
			if s, err := c.Act(t.Context(), unitplan.Unit{Name: "once.service", Verb: unitplan.Restart}); err != nil ||
				!s.Exists || s.Failed {
				t.Errorf("a oneshot: %+v, %v", s, err)
			}
			if _, err := c.Act(t.Context(), unitplan.Unit{Name: "never.service", Verb: unitplan.Restart}); err == nil ||
				!state("never.service").Failed {
				t.Errorf("a oneshot that fails: %v, %+v", err, state("never.service"))
			}
			if _, err := c.Act(t.Context(), unitplan.Unit{Name: "a.service", Verb: unitplan.Restart}); err == nil ||
				!strings.Contains(err.Error(), "only a oneshot") {
				t.Errorf("a restart of a service: %v", err)
			}
			run(t, h, "systemctl", "restart", "dbus.service")
			wait.For(t, "the bus", func() bool {
				s, err := c.Look(t.Context(), unitplan.Unit{Name: "a.service"})
				return err == nil && s.State.Active
			})
		})
	}
}

func TestTheTrustStoreIsRebuiltInItsSandbox(t *testing.T) {
	for name, release := range releases {
		t.Run(name, func(t *testing.T) {
			ca := testpki.NewCA("additional")
			h := bootServices(t, release, nil, map[string]host.File{"/usr/local/share/ca-certificates/x.crt": {Data: ca}})
			c := bus(t, h)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := c.Act(ctx, unitplan.Unit{Name: updateCATrust, Verb: unitplan.Restart})
			if err != nil || !s.Active {
				t.Fatalf("%+v, %v: %s", s, err, run(t, h, "sh", "-c", "journalctl --no-pager -u "+updateCATrust))
			}
			const store = "/etc/ssl/certs/ca-certificates.crt"
			if bundle := run(t, h, "cat", store); !strings.Contains(bundle, strings.TrimSpace(string(ca))) {
				t.Error("the certificate is not in the store")
			}
			if got := run(t, h, "stat", "-c", "%a %U", store); got != "644 root" {
				t.Errorf("the store is %s", got)
			}
			run(t, h, "rm", "/usr/local/share/ca-certificates/x.crt")
			if again, err := c.Act(ctx, unitplan.Unit{Name: updateCATrust, Verb: unitplan.Restart}); err != nil ||
				again.Invocation == s.Invocation {
				t.Errorf("the second run: %+v, %v", again, err)
			}
			if bundle := run(t, h, "cat", store); bytes.Contains([]byte(bundle), bytes.TrimSpace(ca)) {
				t.Error("a certificate that was taken away stays in the store")
			}
			// The store is all that it may write: a hook of Debian's runs as it does.
			hook := "#!/bin/sh\nfor f in /etc/x /usr/x /etc/kubernetes/x /run/x /var/lib/x /etc/systemd/system/x; do (echo x " +
				">$f) 2>/dev/null && echo $f >>/etc/ssl/certs/written; done; :\n"
			if err := h.PutFile("/etc/ca-certificates/update.d/try", host.File{Data: []byte(hook), Mode: 0o755}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Act(ctx, unitplan.Unit{Name: updateCATrust, Verb: unitplan.Restart}); err != nil {
				t.Fatal(err)
			}
			if written := run(t, h, "sh", "-c",
				"ls /etc/ssl/certs/written 2>/dev/null && cat /etc/ssl/certs/written; :"); written != "" {
				t.Errorf("it could write %s", written)
			}
			run(t, h, "sh", "-c", "rm /etc/ca-certificates/update.d/try; chmod -x /usr/sbin/update-ca-certificates")
			if _, err := c.Act(ctx, unitplan.Unit{Name: updateCATrust, Verb: unitplan.Restart}); err == nil {
				t.Error("a program that cannot be run is a success")
			}
		})
	}
}

// updateCATrustProgram stands for Red Hat's, which is not to be had here: it makes the store from the anchors,
// and notes what else it can write.
const updateCATrustProgram = `#!/bin/sh
[ "$1" = extract ] || exit 3
cat /etc/pki/ca-trust/source/anchors/* >/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem || exit 4
for f in /etc/x /usr/x /etc/kubernetes/x /run/x /var/lib/x /etc/pki/x /etc/pki/ca-trust/source/anchors/x /etc/systemd/system/x; do
	(echo x >$f) 2>/dev/null && echo $f >>/etc/pki/ca-trust/extracted/written
done
:
`

func TestTheTrustStoreOfRedHatsLayoutIsRebuiltInItsSandbox(t *testing.T) {
	for name, release := range releases {
		t.Run(name, func(t *testing.T) {
			ca := testpki.NewCA("additional")
			h := bootServices(t, release, nil, map[string]host.File{
				"/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt": {Data: ca},
				"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem":                    {Data: []byte("old")},
				"/usr/bin/update-ca-trust": {Data: []byte(updateCATrustProgram),
					Mode: 0o755},
			})
			run(t, h, "rm", "-r", "/usr/lib/systemd/system/"+updateCATrust+".d") // which is Debian's package's
			run(t, h, "systemctl", "daemon-reload")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			u := unitplan.Unit{Name: updateCATrust, Verb: unitplan.Restart}
			if s, err := bus(t, h).Act(ctx, u); err != nil || !s.Active {
				t.Fatalf("%+v, %v: %s", s, err, run(t, h, "sh", "-c", "journalctl --no-pager -u "+updateCATrust))
			}
			if store := run(t, h, "cat",
				"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"); store != strings.TrimSpace(string(ca)) {
				t.Errorf("the store holds %.80q", store)
			}
			if written := run(t, h, "sh", "-c", "cat /etc/pki/ca-trust/extracted/written 2>/dev/null; :"); written != "" {
				t.Errorf("it could write %s", written)
			}
			run(t, h, "rm", "/usr/bin/update-ca-trust")
			if _, err := bus(t, h).Act(ctx, u); err == nil {
				t.Error("a program that is not there is a success")
			}
		})
	}
}
