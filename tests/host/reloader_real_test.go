// SPDX-License-Identifier: Apache-2.0

//go:build real

package host_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

const reloaderUnit = "node-cert-agent-reloader.service"

// bootReloader boots a host with the product, this configuration and these services. The agent does not run, and
// the program act asks in its place.
func bootReloader(t *testing.T, r host.Release, config string, services, files map[string]host.File) *host.Host {
	t.Helper()
	all := map[string]host.File{
		"/usr/bin/node-cert-agent":                   {Data: read(t, compile(t, "../../cmd/node-cert-agent")), Mode: 0o755},
		"/usr/bin/act":                               {Data: read(t, compile(t, "./testdata/act")), Mode: 0o755},
		"/etc/node-cert-agent/config.d/50-site.yaml": {Data: []byte(config)},
	}
	maps.Copy(all, files)
	h := bootServices(t, r, services, all)
	run(t, h, "systemctl", "start", "node-cert-agent-reloader.socket")
	return h
}

// act asks for an action as the agent's user.
func act(t *testing.T, h *host.Host, verb, unit string) error {
	t.Helper()
	_, err := h.RunAs(t.Context(), "node-cert-agent", "act", verb, unit)
	return err
}

// actInTime is act once enough time has passed since the last start, or since some actions.
func actInTime(t *testing.T, h *host.Host, verb, unit string) (err error) {
	t.Helper()
	wait.For(t, "a distance to what came before", func() bool {
		err = act(t, h, verb, unit)
		return err == nil || !strings.Contains(err.Error(), "start limit") && !strings.Contains(err.Error(), "acted on")
	})
	return err
}

func wantRefused(t *testing.T, err error, reason string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("have %v, want %q", err, reason)
	}
}

// recorded are the lines of the reloader's own journal, those included that journald has yet to read.
func recorded(t *testing.T, h *host.Host) string {
	t.Helper()
	run(t, h, "journalctl", "--sync")
	return run(t, h, "journalctl", "--no-pager", "-o", "cat", "_SYSTEMD_UNIT="+reloaderUnit)
}

const badInput = `apiVersion: config.node-cert-agent.io/v1alpha1
units:
  a.service: {verb: reload}
  slow.service: {verb: reload}
  masked.service: {verb: reload}
  killer.service: {verb: reload}
  twice.service: {verb: try-restart}
`

// slowReload ends when somebody writes to a pipe.
const slowReload = "[Service]\nExecStartPre=/bin/sh -c 'rm -f /run/slow; mkfifo /run/slow'\nExecStart=/bin/sleep " +
	"infinity\nExecReload=/bin/sh -c 'echo begun >>/run/begun; read line </run/slow'\nTimeoutStartSec=600\n"

func TestTheReloaderWithBadInput(t *testing.T) {
	for name, release := range releases {
		t.Run(name, func(t *testing.T) {
			h := bootReloader(t, release, badInput, map[string]host.File{"a.service": noted(), "masked.service": {},
				"twice.service": noted(),
				"slow.service":  {Data: []byte(slowReload)},
				// It ends the agent, in whose place the program act asks.
				"killer.service": {Data: []byte("[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/sh -c 'kill -9 $(cat " +
					"/run/asker)'\n")}}, nil)
			run(t, h, "sh", "-c", "rm /etc/systemd/system/masked.service && ln -s /dev/null /etc/systemd/system/masked.service "+
				"&& systemctl daemon-reload")
			run(t, h, "systemctl", "start", "a.service", "slow.service", "killer.service", "twice.service")
			for _, part := range []struct {
				name string
				do   func(*testing.T, *host.Host)
			}{
				{"a unit that is masked", func(t *testing.T, h *host.Host) {
					wantRefused(t, act(t, h, "reload", "masked.service"), "no-such-unit")
				}},
				{"a unit whose reload ends the agent", killsTheAgent},
				{"actions while systemd executes itself anew", executedAnew},
				{"a unit that never finishes, asked for again, while systemd executes itself anew", neverFinishes},
				{"two requests at once", twoAtOnce},
				{"no bus", noBus},
				{"a unit that was taken off the allowlist a moment ago", takenOff},
				{"a flood of requests", flood},
				{"a service without polkit", withoutPolkit},
			} {
				t.Run(part.name, func(t *testing.T) { part.do(t, h) })
			}
		})
	}
}

func killsTheAgent(t *testing.T, h *host.Host) {
	_, err := h.RunAs(t.Context(), "root", "sh", "-c", "echo $$ >/run/asker; exec act reload killer.service")
	if err == nil {
		t.Error("who asked lives on")
	}
	wait.For(t, "the record of the end", func() bool {
		return strings.Contains(recorded(t, h), `reloader done: unit="killer.service"`)
	})
	if err := actInTime(t, h, "reload", "a.service"); err != nil {
		t.Errorf("the next agent: %v", err)
	}
}

// slowAction asks for an action whose job does not end by itself, and returns when that is under way.
func slowAction(t *testing.T, h *host.Host) (ended <-chan error) {
	t.Helper()
	end := make(chan error, 1)
	go func() {
		_, err := h.RunAs(t.Context(), "node-cert-agent", "act", "reload", "slow.service")
		end <- err
	}()
	wait.For(t, "the job", func() bool {
		return show(t, h, "Job", "slow.service") != "" && show(t, h, "Job", "slow.service") != "0"
	})
	return end
}

// executedAnew has systemd forget its connections, and how to announce what it does: once during an action, and again
// and again while others are asked for.
func executedAnew(t *testing.T, h *host.Host) {
	ended := slowAction(t, h)
	anew := make(chan error, 1)
	go func() {
		_, err := h.Run(t.Context(), "sh", "-c", "for i in 1 2 3 4 5; do systemctl daemon-reexec; done")
		anew <- err
	}()
	for done := false; !done; {
		select {
		case err := <-anew:
			if done = true; err != nil {
				t.Error(err)
			}
		default:
			if err := act(t, h, "reload", "a.service"); err != nil && !strings.Contains(err.Error(), "unreachable") {
				wantRefused(t, err, "later")
			}
		}
	}
	if err := actInTime(t, h, "reload", "a.service"); err != nil {
		t.Errorf("after it: %v", err)
	}
	run(t, h, "sh", "-c", "echo done >/run/slow; rm /run/begun")
	select {
	case err := <-ended:
		if t.Logf("the action that was under way: %v", err); err != nil {
			wantRefused(t, err, "unreachable")
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the end of an action is waited for ever since")
	}
	wait.For(t, "an end of each action in the records", func() bool {
		said := recorded(t, h)
		ends := strings.Count(said, "reloader done:") + strings.Count(said, "reloader failed:")
		return strings.Count(said, "reloader begins:") == ends
	})
}

func neverFinishes(t *testing.T, h *host.Host) {
	ended := slowAction(t, h)
	pid := show(t, h, "MainPID", reloaderUnit)
	wantRefused(t, act(t, h, "reload", "slow.service"), "later: an earlier action has not ended")
	if err := actInTime(t, h, "reload", "a.service"); err != nil { // others asked for it just before
		t.Errorf("another unit meanwhile: %v", err)
	}
	run(t, h, "systemctl", "daemon-reexec")
	if err := actInTime(t, h, "reload", "a.service"); err != nil {
		t.Errorf("another unit after systemd executed itself anew: %v", err)
	}
	// The next reloader does not know of the job, and systemd does.
	run(t, h, "systemctl", "restart", reloaderUnit)
	wantRefused(t, <-ended, "unreachable")
	if show(t, h, "MainPID", reloaderUnit) == pid {
		t.Error("the reloader is still the same")
	}
	wantRefused(t, act(t, h, "reload", "slow.service"), "later: systemd has a job for it")
	if begun := run(t, h, "cat", "/run/begun"); begun != "begun" {
		t.Errorf("it was reloaded again while it was: %q", begun)
	}
	run(t, h, "sh", "-c", "echo done >/run/slow")
	wait.For(t, "the end of the job", func() bool {
		return show(t, h, "Job", "slow.service") == "" || show(t, h, "Job", "slow.service") == "0"
	})
}

func twoAtOnce(t *testing.T, h *host.Host) {
	run(t, h, "rm", "-f", "/run/acts")
	good := 0
	wait.For(t, "one of them to be let through", func() bool {
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() { _, errs[i] = h.RunAs(t.Context(), "node-cert-agent", "act", "try-restart", "twice.service") })
		}
		wg.Wait()
		for _, err := range errs {
			if err == nil {
				good++
			} else {
				wantRefused(t, err, "later")
			}
		}
		return good > 0
	})
	if acts := run(t, h, "cat", "/run/acts"); good != 1 || acts != "start twice.service" {
		t.Errorf("%d of 4 succeeded, and the unit noted %q", good, acts)
	}
}

func noBus(t *testing.T, h *host.Host) {
	run(t, h, "systemctl", "stop", "dbus.socket", "dbus.service")
	wantRefused(t, act(t, h, "reload", "a.service"), "unreachable")
	run(t, h, "systemctl", "start", "dbus.socket")
	if err := actInTime(t, h, "reload", "a.service"); err != nil {
		t.Errorf("once there is a bus again: %v", err)
	}
}

func takenOff(t *testing.T, h *host.Host) {
	if err := actInTime(t, h, "reload", "a.service"); err != nil {
		t.Error(err)
	}
	if err := h.PutFile("/etc/node-cert-agent/config.d/50-site.yaml",
		host.File{Data: []byte(strings.Replace(badInput, "  a.service: {verb: reload}\n", "", 1))}); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, act(t, h, "reload", "a.service"), "refused: it is not on the allowlist")
	if !strings.Contains(recorded(t, h), `reloader refused a request: uid=`) {
		t.Error("the refusal is not recorded")
	}
	if err := h.PutFile("/etc/node-cert-agent/config.d/50-site.yaml", host.File{Data: []byte(badInput)}); err != nil {
		t.Fatal(err)
	}
	if err := actInTime(t, h, "reload", "a.service"); err != nil {
		t.Errorf("on the list again: %v", err)
	}
}

// flood has the reloader asked as fast as can be. Each action is recorded twice, and there are few.
func flood(t *testing.T, h *host.Host) {
	run(t, h, "rm", "-f", "/run/acts")
	count := func(what string) int { return strings.Count(recorded(t, h), what) }
	begins, done := count(`reloader begins: unit="a.service"`), count(`reloader done: unit="a.service"`)
	begun := time.Now()
	_, _ = h.RunAs(t.Context(), "node-cert-agent", "sh", "-c",
		"for i in $(seq 200); do act reload a.service; done 2>/dev/null; true")
	took := time.Since(begun)
	acts := strings.Count(run(t, h, "cat", "/run/acts"), "reload a.service")
	if most := 5 + int(took.Seconds()) + 1; acts < 1 || acts > most {
		t.Errorf("%d reloads in %v", acts, took)
	}
	begins, done = count(`reloader begins: unit="a.service"`)-begins, count(`reloader done: unit="a.service"`)-done
	if begins != acts || done != acts {
		t.Errorf("%d reloads, of which %d begin and %d are done by the records:\n%s", acts, begins, done, recorded(t, h))
	}
	t.Logf("%d reloads in %v", acts, took)
}

func withoutPolkit(t *testing.T, h *host.Host) {
	run(t, h, "systemctl", "mask", "--now", "polkit.service")
	if err := actInTime(t, h, "reload", "a.service"); err != nil {
		t.Error(err)
	}
}

// A stop that somebody asked for, and that takes its time, is not cancelled by whatever the agent asks for: not of the
// unit itself, and not of one that its restart would start.
func TestNoJobOfOthersIsTouched(t *testing.T) {
	const slowStop = "[Unit]\n%s\n[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\nExecStop=/bin/sh -c " +
		"'read line </run/%s'\nTimeoutStopSec=600\n"
	for name, release := range releases {
		t.Run(name, func(t *testing.T) {
			config := "apiVersion: config.node-cert-agent.io/v1alpha1\nunits:\n  reader.service: {verb: try-restart}\n  " +
				"needs.service: {verb: try-restart}\n  idle.service: {verb: try-restart}\n"
			h := bootReloader(t, release, config, map[string]host.File{
				"reader.service":  {Data: fmt.Appendf(nil, slowStop, "", "stop-reader")},
				"dep.service":     {Data: fmt.Appendf(nil, slowStop, "", "stop-dep")},
				"needs.service":   {Data: []byte("[Unit]\nWants=dep.service\n[Service]\nExecStart=/bin/sleep infinity\n")},
				"idle.service":    {Data: []byte("[Service]\nExecStart=/bin/sleep infinity\n")},
				"blocked.service": {Data: []byte("[Unit]\nAfter=never.service\n[Service]\nExecStart=/bin/sleep infinity\n")},
				"never.service": {Data: []byte("[Service]\nType=oneshot\nExecStart=/bin/sh -c 'read line " +
					"</run/never'\nTimeoutStartSec=600\n")},
			}, nil)
			run(t, h, "sh", "-c", "mkfifo /run/stop-reader /run/stop-dep /run/never; systemctl start reader.service "+
				"dep.service needs.service")
			run(t, h, "systemctl", "start", "--no-block", "never.service", "blocked.service")
			run(t, h, "systemctl", "stop", "--no-block", "reader.service", "dep.service")
			jobs := func() string {
				return run(t, h, "sh", "-c", "systemctl list-jobs --no-legend | awk '{print $2,$3,$4}' | sort")
			}
			wait.For(t, "the jobs", func() bool { return strings.Count(jobs(), "running") == 3 })
			before := jobs()
			for range 3 {
				wantRefused(t, actInTime(t, h, "try-restart", "reader.service"), "later: systemd has a job for it")
				wantRefused(t, actInTime(t, h, "try-restart", "idle.service"), "not-active")
				if err := actInTime(t, h, "try-restart", "needs.service"); err != nil {
					t.Errorf("what only wants a unit that is being stopped: %v", err)
				}
			}
			if after := jobs(); after != before || strings.Count(after, "\n") != 3 {
				t.Errorf("the jobs\n%s\nbecame\n%s", before, after)
			}
			run(t, h, "sh", "-c", "echo >/run/stop-reader; echo >/run/stop-dep; echo >/run/never")
			wait.For(t, "both stops", func() bool {
				return run(t, h, "sh", "-c",
					"systemctl is-active reader.service dep.service blocked.service; true") == "inactive\ninactive\nactive"
			})
		})
	}
}

// It ends when nobody asks, and is there when somebody does.
func TestAnIdleReloaderEndsAndIsStartedAgain(t *testing.T) {
	t.Parallel()
	h := bootReloader(t, host.Same, badInput, map[string]host.File{"a.service": noted()}, nil)
	run(t, h, "systemctl", "start", "a.service")
	if err := actInTime(t, h, "reload", "a.service"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	wait.For(t, "its end", func() bool { return show(t, h, "ActiveState", reloaderUnit) == "inactive" })
	t.Logf("it ended after %v", time.Since(begun).Round(time.Second))
	if result := show(t, h, "Result", reloaderUnit); result != "success" {
		t.Errorf("it ended with %s", result)
	}
	if err := actInTime(t, h, "reload", "a.service"); err != nil {
		t.Errorf("the next request: %v", err)
	}
}
