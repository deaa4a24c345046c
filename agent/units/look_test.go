// SPDX-License-Identifier: Apache-2.0

package units

import "testing"

func TestOnlyADenialCountsAsRefused(t *testing.T) {
	for sentence, c := range map[string]struct {
		unit    *fakeUnit
		refused bool
		reason  Reason
	}{
		"denied by polkit":                     {&fakeUnit{deny: "org.freedesktop.DBus.Error.AccessDenied"}, true, ""},
		"polkit would ask a person":            {&fakeUnit{deny: "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"}, true, ""},
		"polkit is masked":                     {&fakeUnit{deny: "org.freedesktop.systemd1.UnitMasked"}, true, ""},
		"allowed, and there is no such unit":   {nil, false, ""},
		"allowed, and a job that does nothing": {&fakeUnit{}, false, ""},
		"any other answer":                     {&fakeUnit{deny: "org.freedesktop.DBus.Error.LimitsExceeded"}, false, Unexpected},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := newFakeBus(t, map[string]*fakeUnit{Nobody: c.unit})
			if c.unit == nil {
				delete(b.units, Nobody)
			}
			refused, err := connected(t, b).Refuses(within(t))
			if refused != c.refused || err != nil != (c.reason != "") || err != nil && reason(t, err) != c.reason {
				t.Errorf("refused %v, %v", refused, err)
			}
			if asked := <-b.started; asked != "TryRestartUnit "+Nobody {
				t.Errorf("asked for %s", asked)
			}
		})
	}
}

func TestVersionsAndProcessesAreRead(t *testing.T) {
	type command struct {
		Path   string
		Words  []string
		Ignore bool
	}
	b := newFakeBus(t, map[string]*fakeUnit{"w.service": {more: map[string]any{"MainPID": uint32(42), "ExecStart": []command{{"/bin/w", []string{"w", "x"}, true}}}},
		"idle.service": {more: map[string]any{"ExecStart": []command{}}}})
	say := func(what map[string]string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.says = what
	}
	say(map[string]string{managerIface: "252.39", "org.freedesktop.PolicyKit1.Authority": "0.105"})
	c := connected(t, b)
	if v, err := c.Systemd(within(t)); v != "252.39" || err != nil {
		t.Errorf("systemd is %q, %v", v, err)
	}
	if v, err := c.Polkit(within(t)); v != "0.105" || err != nil {
		t.Errorf("polkit is %q, %v", v, err)
	}
	if pid, err := c.MainPID(within(t), "w.service"); pid != 42 || err != nil {
		t.Errorf("the process is %d, %v", pid, err)
	}
	for service, want := range map[string]string{"w.service": "/bin/w", "idle.service": ""} {
		if path, err := c.Program(within(t), service); path != want || err != nil {
			t.Errorf("%s runs %q, %v", service, path, err)
		}
	}
	if _, err := c.Program(within(t), "none.service"); err == nil {
		t.Error("a service that does not exist runs a program")
	}
	if _, err := c.MainPID(within(t), "none.service"); err == nil {
		t.Error("a service that does not exist has a process")
	}
	say(nil)
	if v, err := c.Polkit(within(t)); v != "" || err == nil {
		t.Errorf("without polkit it is %q, %v", v, err)
	}
}
