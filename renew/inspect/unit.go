// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"path"
	"slices"
	"strings"
)

// unitDirectories are those of the administrator, of this run and of packages, the strongest first.
var unitDirectories = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"}

// unit is what we need to know of a service.
type unit struct {
	// command is its ExecStart, in words; the last one counts if there are several.
	command []string
	// environment are the lines of its EnvironmentFile.
	environment []string
}

// unit reads a service and its drop-ins; nothing if root's files do not have it, or if it has no command. No
// specifier and no variable is resolved.
func (h Host) unit(name string) (u unit, ok bool) {
	if name == "" {
		return u, false
	}
	var texts []string
	for _, dir := range unitDirectories {
		if c, err := h.follow(path.Join(dir, name)); err == nil && c.foreign == "" {
			texts = append(texts, string(c.data))
			break
		}
	}
	for _, dir := range slices.Backward(unitDirectories) {
		dir = path.Join(dir, name+".d")
		names := h.names(dir)
		slices.Sort(names)
		for _, name := range names {
			if c, err := h.read(path.Join(dir, name)); err == nil && c.foreign == "" && strings.HasSuffix(name, ".conf") {
				texts = append(texts, string(c.data))
			}
		}
	}
	for _, text := range texts {
		h.settings(&u, text)
	}
	return u, len(u.command) > 0
}

// settings takes in what one file says.
func (h Host) settings(u *unit, text string) {
	section := ""
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		}
		key, value, _ := strings.Cut(line, "=")
		value = strings.TrimSpace(value)
		switch {
		case section != "[Service]" || value == "":
		case strings.TrimSpace(key) == "ExecStart":
			u.command = strings.Fields(strings.TrimLeft(value, "@-:+!|"))
		case strings.TrimSpace(key) == "EnvironmentFile":
			if c, err := h.read(strings.TrimPrefix(value, "-")); err == nil && c.foreign == "" {
				u.environment = append(u.environment, strings.Split(string(c.data), "\n")...)
			}
		}
	}
}
