// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// unitDirs are where units and their drop-ins are, the strongest first (systemd.unit(5), "Unit File Load Path").
var unitDirs = []string{
	"/etc/systemd/system.control", "/run/systemd/system.control", "/etc/systemd/system", "/run/systemd/system",
	"/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system",
}

// resolver reads whom the host asks for names, and whom the service's unit keeps it from.
func (c *collector) resolver() {
	if c.facts.Plain {
		return
	}
	text, _ := os.ReadFile(c.on("/etc/resolv.conf"))
	c.facts.Resolvers, c.facts.Unit = nameservers(string(text)), unitText(c.opt.Config.Root, agentService)
}

// nameservers are those of resolv.conf(5).
func nameservers(text string) (all []netip.Addr) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			if a, err := netip.ParseAddr(f[1]); err == nil {
				all = append(all, a.Unmap().WithZone(""))
			}
		}
	}
	return all
}

// unitText is a unit as it is read: the file of the strongest directory, then the drop-ins of all of them by their
// names. Of those of one name, the strongest counts. Drop-ins for all services, or for a prefix of the name, are
// not looked at.
func unitText(root, name string) string {
	var text strings.Builder
	dropIns := map[string]string{}
	found := false
	for _, dir := range unitDirs {
		dir = filepath.Join(root, dir)
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil && !found {
			found = true
			text.Write(data)
		}
		files, _ := filepath.Glob(filepath.Join(dir, name+".d", "*.conf"))
		for _, file := range files {
			if base := filepath.Base(file); dropIns[base] == "" {
				dropIns[base] = file
			}
		}
	}
	if !found {
		return ""
	}
	for _, base := range slices.Sorted(maps.Keys(dropIns)) {
		data, _ := os.ReadFile(dropIns[base])
		text.WriteString("\n" + string(data))
	}
	return text.String()
}
