// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// reloaderFacts is the process that acts on units.
type reloaderFacts struct {
	// Asked is set if it was asked, which only root and the service's user may do, and Problem is why it did
	// not answer, or could not ask systemd.
	Asked   bool
	Problem string
}

// Unit is one of the allowlist, as systemd has it.
type Unit struct {
	unitplan.Unit
	Exists bool
	// Own is the name that systemd has the unit under; another one if ours is an alias.
	Own string
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
	{240, "Type=exec, LogRateLimitIntervalSec="}, {242, "ProtectHostname=, RestrictSUIDSGID="},
	{244, "ProtectKernelLogs="}, {245, "ProtectClock="},
	{credentials, "LoadCredential=, ProtectProc=, ProcSubset=, FlushPending="},
	{complete, "NoExecPaths=, ExecPaths=, PrivateIPC="},
}

func systemd(f Facts, r *report) {
	const what = "systemd"
	if f.Plain || !f.Reloader.Asked || f.Reloader.Problem != "" {
		return
	}
	var lacks []string
	n := number(f.Systemd)
	for _, s := range since {
		if n < s.version {
			lacks = append(lacks, s.what)
		}
	}
	switch {
	case n < oldest:
		r.add(Fail, what, fmt.Sprintf("use a host with %d or later", oldest), "%s is too old, or says no number",
			printable.Text(f.Systemd))
	case n < complete:
		do := fmt.Sprintf("use %d or later, which knows them all", complete)
		if n < credentials {
			do += "; until then place bootstrap files in /etc/node-cert-agent/bootstrap.d"
		}
		r.add(Warn, what, do, "%s passes over parts of our units, whose sandbox is weaker for it: %s",
			printable.Text(f.Systemd), strings.Join(lacks, ", "))
	default:
		r.ok(what, "%s", printable.Text(f.Systemd))
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

func reloader(f Facts, r *report) {
	const what = "reloader"
	switch {
	case f.Plain, !f.Reloader.Asked:
	case f.Reloader.Problem != "":
		r.add(Fail, what, "systemctl enable --now node-cert-agent-reloader.socket; systemctl status "+
			"node-cert-agent-reloader.service dbus.socket",
			"no unit is acted on: %s", printable.Text(f.Reloader.Problem))
	default:
		r.ok(what, "answers, and reaches systemd")
	}
}

// allowlist says what the worst is.
func allowlist(f Facts, r *report) {
	if f.Plain || !f.Reloader.Asked || f.Reloader.Problem != "" {
		return
	}
	var could []string
	for _, u := range f.Units {
		if u.Problem != "" || !u.Exists || u.Own != u.Name || u.Refuse(u.Affected) != "" {
			continue // the reloader refuses it
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
	r.ok("allowlist", "a compromised agent could act on: %s", printable.Text(strings.Join(could, "; ")))
}

func closure(f Facts, r *report) {
	const what = "unit"
	if f.Plain {
		return
	}
	for _, u := range f.Units {
		names := func(spec plan.FileSpec) bool { return slices.Contains(spec.OnChange, u.Name) }
		fact, do, _ := strings.Cut(u.Refuse(u.Affected), "; to allow that, ")
		switch {
		case u.Problem != "":
			r.add(Warn, what, "", "%s: %s", u.Name, printable.Text(u.Problem))
		case !u.Exists:
			r.add(Warn, what, fmt.Sprintf("correct the name, or `units: {%s: {enabled: false}}`", u.Name),
				"%s does not exist or is masked: it is never acted on", u.Name)
		case u.Own != u.Name:
			r.add(Fail, what, fmt.Sprintf("name %s in `units` and in `onChange`", printable.Text(u.Own)),
				"%s is an alias of %s: it is refused", u.Name, printable.Text(u.Own))
		case u.Absent != "":
			r.add(Fail, what, fmt.Sprintf("name this distribution's: systemctl edit %s, [Service] ExecStart= and "+
				"ExecStart=PROGRAM", u.Name), "%s cannot start: there is no %s", u.Name, printable.Text(u.Absent))
		case fact != "":
			r.add(Fail, what, do, "%s: it is refused", printable.Text(fact))
		case !slices.ContainsFunc(f.Policy.Files, names):
			r.add(Warn, what, fmt.Sprintf("name it where it is needed: `files: {FIELD: {onChange: [%s]}}`", u.Name),
				"%s is on the allowlist, and no file names it: it is never acted on", u.Name)
		default:
			r.ok(what, "%s %s", u.Verb, u.Name)
		}
	}
}

// resolver compares the name servers of the host with the addresses that the service's unit denies. What is sent
// to one of these is dropped: looking up a name takes until another is asked, or fails.
func resolver(f Facts, r *report) {
	const what = "resolver"
	if f.Plain || f.Unit == "" || len(f.Resolvers) == 0 {
		return
	}
	cut := slices.DeleteFunc(slices.Clone(f.Resolvers), func(a netip.Addr) bool { return reaches(f.Unit, a) })
	if len(cut) == 0 {
		r.ok(what, "the service may ask %s", list(f.Resolvers))
		return
	}
	r.add(Warn, what, "systemctl edit node-cert-agent.service, add [Service] and an empty IPAddressDeny=, then "+
		"systemctl restart node-cert-agent.service; or name the API server by its address",
		"the service cannot reach the host's name server %s: IPAddressDeny= of its unit denies it", list(cut))
}

func list(addresses []netip.Addr) string {
	var names []string
	for _, a := range addresses {
		names = append(names, a.String())
	}
	return strings.Join(names, ", ")
}

// reaches tells whether the text of a unit, its drop-ins behind it, leaves an address alone. What is allowed may
// be denied as well, and an empty value takes back what came before (systemd.resource-control(5)).
func reaches(unit string, a netip.Addr) bool {
	var allow, deny bool
	for line := range strings.Lines(unit) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		var hit *bool
		switch strings.TrimSpace(key) {
		case "IPAddressAllow":
			hit = &allow
		case "IPAddressDeny":
			hit = &deny
		default:
			continue
		}
		words := strings.Fields(value)
		*hit = len(words) > 0 && (*hit || slices.ContainsFunc(words, func(w string) bool { return covers(w, a) }))
	}
	return allow || !deny
}

// named are the words that stand for addresses.
var named = map[string][]string{
	"any": {"0.0.0.0/0", "::/0"}, "localhost": {"127.0.0.0/8", "::1/128"}, "link-local": {"169.254.0.0/16", "fe80::/64"},
	"multicast": {"224.0.0.0/4", "ff00::/8"},
}

// covers tells whether one word of the unit's list means the address.
func covers(word string, a netip.Addr) bool {
	prefixes, ok := named[word]
	if !ok {
		prefixes = []string{word}
	}
	return slices.ContainsFunc(prefixes, func(text string) bool {
		if one, err := netip.ParseAddr(text); err == nil {
			return one == a
		}
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(a)
	})
}
