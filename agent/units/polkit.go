// SPDX-License-Identifier: Apache-2.0

package units

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// The text around the two encoded values. It answers for our user alone, and then always: what is
// not in the list is NO whatever later rules or the action's defaults say. Pairs are compared one by
// one because a look-up by name in an object would also find what every object has.
const (
	rulePrefix = `// Written by "node-cert-agent polkit-rule" from the units that the configuration of node-cert-agent
// allows (config.d, key "units"). Changes made here are lost; change the configuration.
polkit.addRule(function (action, subject) {
    var user = `
	ruleMiddle = `;
    var allowed = `
	ruleSuffix = `;
    if (subject.user !== user) {
        return polkit.Result.NOT_HANDLED;
    }
    if (action.id === "org.freedesktop.systemd1.manage-units") {
        var unit = action.lookup("unit");
        var verb = action.lookup("verb");
        for (var i = 0; i < allowed.length; i++) {
            if (allowed[i][0] === unit && allowed[i][1] === verb) {
                return polkit.Result.YES;
            }
        }
    }
    return polkit.Result.NO;
});
`
)

// PolkitRule is the rule, for rules.d of polkit(8), that lets the user do to each unit what the
// allowlist says, and nothing else. It is the same text for the same list in any order. Verbs are
// those that systemd passes with org.freedesktop.systemd1.manage-units, which are the names of its
// job types; entries with other verbs than reload, try-restart and restart are left out.
func PolkitRule(user string, units []plan.Unit) string {
	allowed := [][2]string{}
	for _, u := range units {
		if _, ok := methods[u.Verb]; ok {
			allowed = append(allowed, [2]string{u.Name, string(u.Verb)})
		}
	}
	slices.SortFunc(allowed, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return rulePrefix + encode(user) + ruleMiddle + encodeList(slices.Compact(allowed)) + ruleSuffix
}

// encodeList is a list of lists, one to a line.
func encodeList(pairs [][2]string) string {
	if len(pairs) == 0 {
		return "[]"
	}
	lines := make([]string, len(pairs))
	for i, p := range pairs {
		lines[i] = "        " + encode(p)
	}
	return "[\n" + strings.Join(lines, ",\n") + "\n    ]"
}

// encode gives v as JSON, which is JavaScript too: encoding/json escapes U+2028 and U+2029. Strings
// and lists of strings cannot fail.
func encode(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
