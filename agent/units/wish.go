// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// wishes is the directory of the files node-cert-agent-VERB@.path watches: VERB/UNIT.
const wishes = "/run/node-cert-agent/wishes"

// PathUnit names the path unit by which an administrator allows this on a host without polkit.
func PathUnit(u plan.Unit) string {
	return "node-cert-agent-" + string(u.Verb) + "@" + strings.TrimSuffix(u.Name, ".service") + ".path"
}

// wish is the way on a host without polkit, where systemd denies everything: if the administrator has
// enabled the path unit for this verb and unit, a file is written that it watches, and the service that
// it starts, as root, asks for the job. Which path units there are is the allowlist then. Without one the
// denial stands.
func (c *Conn) wish(ctx context.Context, bus *dbus.Conn, u plan.Unit, denial error) (result string, err error) {
	path := PathUnit(u)
	watch, err := properties(ctx, bus, path)
	if err != nil || text(watch, "ActiveState") != "active" {
		return "", denial
	}
	service := strings.TrimSuffix(path, ".path") + ".service"
	// systemd looks at the file only while the service does not run.
	if text(watch, "SubState") != "waiting" {
		return "", &Error{Reason: Unfinished, Detail: service + " still runs"}
	}
	write := func() error { return os.WriteFile(filepath.Join(c.wishes, string(u.Verb), u.Name), nil, 0o600) }
	return await(ctx, bus, write, func(_ dbus.ObjectPath, unit string) bool { return unit == service })
}
