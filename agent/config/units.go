// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
	"go.yaml.in/yaml/v3"
)

// unitTypes are the suffixes of systemd.unit(5).
var unitTypes = []string{".service", ".socket", ".device", ".mount", ".automount", ".swap", ".target",
	".path", ".timer", ".slice", ".scope"}

// anyUnitName accepts the full name of one unit, of any type, as systemd.unit(5) spells it: ASCII
// letters, digits and :-_.\, one @ with an instance after it, at most 255 bytes.
func anyUnitName(name string) error {
	if len(name) > 255 {
		return fmt.Errorf("a unit name of %d bytes; want at most 255", len(name))
	}
	for _, c := range name {
		switch {
		case strings.ContainsRune("*?[]", c):
			return fmt.Errorf("%q is a pattern; name each unit in full", name)
		case (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(`:-_.\@`, c):
			return fmt.Errorf("%q is not a unit name: it holds %q", name, c)
		}
	}
	suffix := path.Ext(name)
	if !slices.Contains(unitTypes, suffix) {
		return fmt.Errorf("%q has no suffix such as .service; want the full name of the unit", name)
	}
	prefix, instance, at := strings.Cut(strings.TrimSuffix(name, suffix), "@")
	switch {
	case prefix == "":
		return fmt.Errorf("%q has nothing before its suffix", name)
	case at && instance == "":
		return fmt.Errorf("%q is a template; name an instance of it", name)
	case strings.Contains(instance, "@"):
		return fmt.Errorf("%q holds more than one @", name)
	}
	return nil
}

// updateCATrust is our oneshot that has the distribution rebuild its trust store: the one unit that is
// ours and on an allowlist, and the one that may be restarted.
const updateCATrust = "node-cert-agent-update-ca-trust.service"

// unitName accepts what may be on the allowlist: a service that is neither ours nor one that
// carries the host.
func unitName(name string) error {
	if err := anyUnitName(name); err != nil {
		return err
	}
	if path.Ext(name) != ".service" {
		return fmt.Errorf("%q is not a service; only services load certificates", name)
	}
	if name == updateCATrust {
		return nil
	}
	return untouchable(name)
}

// alsoName accepts what systemd may act on with an allowlisted unit: units of any type, but none of those
// that cannot be on the allowlist whatever the administrator says.
func alsoName(name string) error {
	if err := anyUnitName(name); err != nil {
		return err
	}
	return untouchable(name)
}

// untouchable refuses ourselves and what we and the host stand on.
func untouchable(name string) error {
	if strings.HasPrefix(name, "node-cert-agent") {
		return fmt.Errorf("%q is ours; the agent does not act on itself", name)
	}
	if name == "init.scope" {
		return fmt.Errorf("%q is systemd itself; it cannot be on the allowlist", name)
	}
	for _, prefix := range []string{"systemd-", "dbus", "polkit"} {
		if strings.HasPrefix(name, prefix) {
			return fmt.Errorf("%q carries the host and the agent's own rights; it cannot be on the allowlist", name)
		}
	}
	return nil
}

// refusedVerbs are what somebody might ask for, and why it is not possible.
var refusedVerbs = map[string]string{
	"start":   "whoever may start a unit can, on systemd 257, have a transient unit run as root",
	"stop":    "a stopped unit stays down if the agent dies",
	"enable":  "what starts at boot is the image's matter",
	"disable": "what starts at boot is the image's matter",
	"mask":    "what starts at boot is the image's matter",
	"kill":    "a signal says nothing about what was loaded",
	"reboot":  "the agent never reboots anything",
}

func verb(n *yaml.Node) (any, error) {
	s, err := str(n)
	if err != nil {
		return nil, err
	}
	if v := unitplan.Verb(s); v == unitplan.Reload || v == unitplan.TryRestart || v == unitplan.Restart {
		return v, nil
	}
	want := fmt.Sprintf("want %s or %s", unitplan.Reload, unitplan.TryRestart)
	if why, ok := refusedVerbs[s]; ok {
		return nil, fmt.Errorf("%s is never granted: %s; %s", s, why, want)
	}
	return nil, errors.New(want)
}

// checkVerb judges a valid verb for this unit.
func checkVerb(unit string, v unitplan.Verb) error {
	switch {
	case unit == updateCATrust && v != unitplan.Restart:
		return fmt.Errorf("want %s: it works by running, and runs only for that", unitplan.Restart)
	case unit == updateCATrust:
		return nil
	case v == "":
		return fmt.Errorf("missing; want %s or %s", unitplan.Reload, unitplan.TryRestart)
	case v == unitplan.Restart:
		return fmt.Errorf("%s is only for %s: it starts what the administrator has stopped; want %s or %s", v, updateCATrust,
			unitplan.Reload, unitplan.TryRestart)
	}
	return nil
}

// toAllow is what to add for a unit that is not on the allowlist.
func toAllow(unit string) string {
	if unit == updateCATrust {
		return fmt.Sprintf("`units: {%s: {verb: %s}}`", unit, unitplan.Restart)
	}
	return fmt.Sprintf("`units: {%s: {verb: %s}}`, or %s", unit, unitplan.Reload, unitplan.TryRestart)
}
