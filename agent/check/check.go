// SPDX-License-Identifier: Apache-2.0

// Package check judges whether this host and its cluster are fit for the agent: what was seen becomes
// findings, each of them good, questionable or bad, with what to do about it.
//
// It owns the decisions and nothing else: Facts are data that package collect gathers, thing by thing,
// and that may be incomplete. What was not looked at yields no finding, and what could not be seen is said to
// be unknown, never to be right. It promises the same findings in the same order for the same facts,
// and that no finding holds more than one line or an unescaped string of others. It is pure.
//
// Sources: the version history in systemd.exec(5), proc(5) for mountinfo, and docs/usage/check.md for people.
package check

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Level says how good a finding is.
type Level string

// OK is as it should be. Warn may be meant so, or will hurt later. Fail does not work.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is one line for people.
type Finding struct {
	Level Level `json:"level"`
	// What was looked at, in a word or two, and Fact what was found.
	What string `json:"what"`
	Fact string `json:"fact"`
	// Fix is what to type or change next; empty if there is nothing to do.
	Fix string `json:"fix,omitempty"`
}

// Facts are what was seen of a host and its cluster.
type Facts struct {
	// Plain is set below a root of one's own, where there is no systemd; Root if root looked.
	Plain, Root bool
	// NoUser is set if the user as which the service runs does not exist.
	NoUser bool
	Now    time.Time
	// Profile, Sources (the files) and Policy are the configuration, which is valid.
	Profile string
	Sources []string
	Policy  unitplan.Policy

	Node        nodeName
	Host        Host
	Directories []Directory
	// Missing are directories of our own, which tmpfiles.d makes, that do not exist.
	Missing []string
	// Mounts is the host's mount table in the form of mountinfo in proc(5), empty if it was not seen.
	Mounts   string
	Files    []File
	Writer   writerFacts
	SELinux  bool
	Reloader reloaderFacts
	// Systemd is the version that systemd gives of itself, if the reloader could ask.
	Systemd string
	Units   []Unit
	Service serviceFacts
	// Unit is the text of the service's unit with that of its drop-ins behind it, in systemd's order; empty if it
	// was not found.
	Unit string
	// Resolvers are the name servers of the host.
	Resolvers []netip.Addr
	Identity  identityFacts
	API       API
	Clock     clockFacts
	// Pairs are those of the host's control plane; nil where nobody looks at them.
	Pairs *Pairs
}

// Judge gives the findings, in the order in which a person would go through them.
func Judge(f Facts) []Finding {
	var out report
	for _, judge := range []func(Facts, *report){
		configuration, profile, node, directories, files, labels, writer, reloader, systemd, allowlist, closure, service,
		resolver, identity, server, objects, clock, pairs,
	} {
		judge(f, &out)
	}
	return out.findings
}

// report collects findings.
type report struct{ findings []Finding }

func (r *report) add(l Level, what, do, format string, args ...any) {
	r.findings = append(r.findings, Finding{l, what, fmt.Sprintf(format, args...), do})
}

func (r *report) ok(what, format string, args ...any) { r.add(OK, what, "", format, args...) }
