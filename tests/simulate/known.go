// SPDX-License-Identifier: Apache-2.0

package simulate

import "strings"

// Known is a defect that is known and not repaired yet.
type Known struct {
	Kind string
	// Text is part of what the violation says.
	Text string
	// What is the defect.
	What string
}

// known lists such defects, so that the walks can look for others meanwhile. It is to be empty.
var known = []Known{
	{"unfit", "", "units are made to load what the agent refuses, or is about to repair"},
	{"needless", "", "a file that cannot be read counts as changed; two lists at one path; a row that is not looked at"},
	{"I2", "", "ABA during a job; a clock that was set back; rows that are not looked at; a full /var/lib"},
	{"made", "", "a oneshot that still runs is adopted"},
	{"busy", "", "a second's pause for a job that does not end, and for a bus that is away"},
	{"trust back", "", "a revoked certificate comes back when the annotation goes while the field is silent"},
	{"trust lost", "", "holds are by key and not by path; a confirmation that never ends; returns that are missed"},
	{"mass", "", "two lists at one path"},
	{"I3", "", "two lists at one path"},
	{"unproven", "", "what is revoked goes without a proof when the field is silent"},
	{"stuck", "", "an action that waits by the wall clock; a retry that is put off"},
	{"tired", "", "an action that failed is tried again soon when the agent starts"},
	{"late", "", "not looked into yet"},
	{"start limit", "", "not looked into yet"},
	{"stays", "", "not looked into yet"},
}

func isKnown(v Violation) bool {
	for _, k := range known {
		if k.Kind == v.Kind && strings.Contains(v.Text, k.Text) {
			return true
		}
	}
	return false
}
