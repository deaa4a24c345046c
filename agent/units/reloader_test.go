// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/reloader"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// process is a reloader on this bus, as its own process is put together, and a client of it.
func process(t *testing.T, b *fakeBus, list ...unitplan.Unit) *reloader.Client {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- reloader.Serve(ctx, ln, connected(t, b), func() ([]unitplan.Unit, error) { return list, nil },
			func(uint32) bool { return true }, io.Discard)
	}()
	c := reloader.Dial(ln.Addr().String(), "boot-1")
	t.Cleanup(func() {
		_ = c.Close()
		cancel()
		<-done
		_ = ln.Close()
	})
	return c
}

func TestFromTheClientToTheBus(t *testing.T) {
	restart := unitplan.Unit{Name: "b.service", Verb: unitplan.TryRestart}
	b := newFakeBus(t, map[string]*fakeUnit{"a.service": {active: "active", invocation: 7, since: since},
		"masked.service": {active: "active", load: "masked"},
		"alias.service":  {active: "active", alias: "secret.service"}, "secret.service": {active: "active"},
		"b.service":       {active: "active", more: map[string]any{"RequiredBy": []string{"kubelet.service"}}},
		"kubelet.service": {active: "active"}})
	masked, alias := unitplan.Unit{Name: "masked.service", Verb: unitplan.Reload},
		unitplan.Unit{Name: "alias.service", Verb: unitplan.Reload}
	c := process(t, b, a, restart, masked, alias)
	want := unitplan.State{Exists: true, Active: true, Boot: "boot-1", Invocation: strings.Repeat("07", 16), Since: since}
	if s, err := c.State(within(t), "a.service"); err != nil || !s.Since.Equal(since) || s.Invocation != want.Invocation ||
		s.Boot != want.Boot {
		t.Errorf("the state is %+v, %v", s, err)
	}
	if s, err := c.Act(within(t), a); err != nil || !s.Active {
		t.Errorf("act: %+v, %v", s, err)
	}
	for u, want := range map[string]struct {
		unit   unitplan.Unit
		reason reloader.Reason
	}{
		"masked": {masked, reloader.NoSuchUnit}, "an alias": {alias, reloader.Refused},
		"with a unit that nobody allowed": {restart, reloader.Refused},
	} {
		if _, err := c.Act(within(t), want.unit); reason(t, err) != want.reason {
			t.Errorf("%s: %v", u, err)
		}
	}
	if call := <-b.started; call != "ReloadUnit a.service" || len(b.started) > 0 {
		t.Errorf("systemd was asked for %s and %d other things", call, len(b.started))
	}
	b.stop()
	if _, err := c.Act(within(t), a); reason(t, err) != reloader.Unreachable {
		t.Errorf("without a bus: %v", err)
	}
	b.start()
	if _, err := c.Act(within(t), a); err != nil {
		t.Errorf("with a bus again: %v", err)
	}
}
