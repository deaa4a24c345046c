// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Version is what something says of itself, or why that is not known.
type Version struct{ Version, Problem string }

// Polkit is what holds the allowlist for systemd.
type Polkit struct {
	Version
	// Rule is the installed one, empty if there is none, and Want what it has to be; Seen is set if it
	// could be looked for. File is where it belongs.
	Rule, Want, File string
	Seen             bool
	// Tried is set if systemd was asked, as the agent's user, for what is on no allowlist, and Refused
	// if it was refused.
	Tried, Refused bool
	// TryProblem is why that could not be tried.
	TryProblem string
}

// Unit is one of the allowlist, as systemd has it.
type Unit struct {
	plan.Unit
	Exists bool
	// Own is the name that systemd has the unit under; another one if ours is an alias.
	Own string
	// ByPath is set if a path unit of ours allows the action, where polkit cannot.
	ByPath bool
	// Affected are the other units that the action would act on.
	Affected []string
	// Absent is the program that the unit would start, if there is none of that name.
	Absent string
	// Problem is why nothing of that is known.
	Problem string
}

// oldest is the first systemd that is looked at here at all, the RPM's condition; credentials is the first
// that hands over credentials, and complete the first that knows every option of our units.
const oldest, credentials, complete = 239, 247, 248

// since says what of our units, and of the drop-in that is described, a version lacks, by the version that
// brought it. Source: systemd's NEWS.
var since = []struct {
	version int
	what    string
}{
	{240, "Type=exec, LogRateLimitIntervalSec="}, {242, "ProtectHostname=, RestrictSUIDSGID="}, {244, "ProtectKernelLogs="}, {245, "ProtectClock="},
	{credentials, "LoadCredential=, ProtectProc=, ProcSubset=, FlushPending="}, {complete, "NoExecPaths=, ExecPaths=, PrivateIPC="},
}

func systemd(f Facts, r *report) {
	const what = "systemd"
	if f.Plain {
		return
	}
	if f.Systemd.Problem != "" {
		r.add(Fail, what, "systemctl status dbus.socket", "cannot be asked: %s", plan.Printable(f.Systemd.Problem))
		return
	}
	var lacks []string
	n := number(f.Systemd.Version)
	for _, s := range since {
		if n < s.version {
			lacks = append(lacks, s.what)
		}
	}
	switch {
	case n < oldest:
		r.add(Fail, what, fmt.Sprintf("use a host with %d or later", oldest), "%s is too old, or says no number", plan.Printable(f.Systemd.Version))
	case n < complete:
		do := fmt.Sprintf("use %d or later, which knows them all", complete)
		if n < credentials {
			do += "; until then place bootstrap files in /etc/node-cert-agent/bootstrap.d"
		}
		r.add(Warn, what, do, "%s passes over parts of our units, whose sandbox is weaker for it: %s", plan.Printable(f.Systemd.Version), strings.Join(lacks, ", "))
	default:
		r.ok(what, "%s", plan.Printable(f.Systemd.Version))
	}
}

// number is the one that a version begins with, or 0.
func number(version string) int {
	version = strings.TrimPrefix(version, "v")
	end := strings.IndexFunc(version, func(c rune) bool { return c < '0' || c > '9' })
	if end < 0 {
		end = len(version)
	}
	n, _ := strconv.Atoi(version[:end])
	return n
}

// discerns reports whether a polkit of this version knows which unit and which verb it is asked about.
// After 0.120 came 121.
func discerns(version string) bool {
	rest, old := strings.CutPrefix(version, "0.")
	return !old && number(version) > 0 || old && number(rest) >= 106
}

func polkit(f Facts, r *report) {
	if f.Plain {
		return
	}
	const what = "polkit"
	const get = "install polkit 0.106 or later, or enable the path units: docs/usage/configuration.md, Without polkit"
	switch p := f.Polkit; {
	case p.Problem != "" && len(f.Policy.Units) == 0:
		r.ok(what, "there is none; the allowlist is empty, and nothing is asked of systemd")
	case (p.Problem != "" || !discerns(p.Version.Version)) && f.byPath():
		r.ok(what, "none that could hold an allowlist; path units hold it")
	case p.Problem != "":
		r.add(Fail, what, get, "cannot be asked, and systemd refuses every action: %s", plan.Printable(p.Problem))
	case !discerns(p.Version.Version):
		r.add(Fail, what, get, "%s does not see which unit and verb are asked for, and cannot hold an allowlist", plan.Printable(p.Version.Version))
	default:
		r.ok(what, "%s", plan.Printable(p.Version.Version))
		rule(f, r)
	}
	tried(f.Polkit, r)
}

func rule(f Facts, r *report) {
	const what = "polkit rule"
	p, do := f.Polkit, "systemctl restart node-cert-agent-polkit.service"
	if f.readOnly(p.File) {
		do = "mount its directory writable, and " + do
	}
	switch {
	case !p.Seen:
	case p.Rule == "":
		r.add(Fail, what, do, "%s is missing: systemd refuses every action", p.File)
	case p.Rule != p.Want:
		r.add(Fail, what, do, "%s is not what the configuration asks for", p.File)
	default:
		r.ok(what, "%s is what the configuration asks for", p.File)
	}
}

func tried(p Polkit, r *report) {
	const what = "confinement"
	switch {
	case p.TryProblem != "":
		r.add(Warn, what, "", "whether systemd refuses what is not on the allowlist could not be tried: %s", plan.Printable(p.TryProblem))
	case p.Tried && !p.Refused:
		r.add(Fail, what, "find the rule or .pkla file that grants org.freedesktop.systemd1.manage-units: grep -r manage-units /etc/polkit-1 /usr/share/polkit-1 /var/lib/polkit-1",
			"systemd did not refuse the agent's user a unit that is not on the allowlist")
	case p.Tried:
		r.ok(what, "systemd refuses the agent's user a unit that is not on the allowlist")
	}
}

// allowlist says what the worst is.
func allowlist(f Facts, r *report) {
	if f.Plain {
		return
	}
	var could []string
	for _, u := range f.Units {
		if u.Problem != "" || !u.Exists {
			continue
		}
		with := ""
		if len(u.Affected) > 0 {
			with = " and with it " + strings.Join(u.Affected, ", ")
		}
		could = append(could, string(u.Verb)+" "+u.Name+with)
	}
	if len(could) == 0 {
		could = []string{"no unit"}
	}
	r.ok("allowlist", "a compromised agent could act on: %s", plan.Printable(strings.Join(could, "; ")))
}

func closure(f Facts, r *report) {
	const what = "unit"
	if f.Plain {
		return
	}
	for _, u := range f.Units {
		fact, do, _ := strings.Cut(u.Refuse(u.Affected), "; to allow that, ")
		switch {
		case u.Problem != "":
			r.add(Warn, what, "", "%s: %s", u.Name, plan.Printable(u.Problem))
		case !u.Exists:
			r.add(Warn, what, fmt.Sprintf("correct the name, or `units: {%s: {enabled: false}}`", u.Name), "%s does not exist or is masked: it is never acted on", u.Name)
		case u.Own != u.Name && !u.ByPath:
			r.add(Fail, what, fmt.Sprintf("name %s in `units` and in `onChange`", u.Own), "%s is an alias of %s, the only name that systemd tells polkit: it is refused", u.Name, u.Own)
		case u.Absent != "":
			r.add(Fail, what, fmt.Sprintf("name this distribution's: systemctl edit %s, [Service] ExecStart= and ExecStart=PROGRAM", u.Name), "%s cannot start: there is no %s", u.Name, plan.Printable(u.Absent))
		case fact != "":
			r.add(Fail, what, do, "%s: it is refused", plan.Printable(fact))
		case !slices.ContainsFunc(f.Policy.Rows, func(row plan.Row) bool { return slices.Contains(row.OnChange, u.Name) }):
			r.add(Warn, what, fmt.Sprintf("name it where it is needed: `rows: {ROW: {onChange: [%s]}}`", u.Name), "%s is on the allowlist, and no row names it: it is never acted on", u.Name)
		default:
			r.ok(what, "%s %s", u.Verb, u.Name)
		}
	}
}

// byPath reports whether path units hold the whole allowlist.
func (f Facts) byPath() bool {
	return len(f.Units) > 0 && !slices.ContainsFunc(f.Units, func(u Unit) bool { return !u.ByPath })
}
