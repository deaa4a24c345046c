// SPDX-License-Identifier: Apache-2.0

package units

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func TestThePolkitRuleReadsLikeThis(t *testing.T) {
	have := PolkitRule("node-cert-agent", []plan.Unit{
		{Name: "crio.service", Verb: plan.TryRestart, AlsoAffects: []string{"kubelet.service"}},
		{Name: "containerd.service", Verb: plan.Reload},
	})
	want := `// Written by "node-cert-agent polkit-rule" from the units that the configuration of node-cert-agent
// allows (config.d, key "units"). Changes made here are lost; change the configuration.
polkit.addRule(function (action, subject) {
    var user = "node-cert-agent";
    var allowed = [
        ["containerd.service","reload"],
        ["crio.service","try-restart"]
    ];
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
	if have != want {
		t.Errorf("have %s", have)
	}
}

// dissect takes the rule apart; it fails unless all but two JSON values is the fixed text.
func dissect(t *testing.T, rule string) (user string, allowed [][2]string) {
	t.Helper()
	rest, ok := strings.CutPrefix(rule, rulePrefix)
	rest, fine := strings.CutSuffix(rest, ruleSuffix)
	if !ok || !fine {
		t.Fatalf("not the fixed text around the values: %s", rule)
	}
	dec := json.NewDecoder(strings.NewReader(rest))
	if err := dec.Decode(&user); err != nil {
		t.Fatalf("user: %v in %s", err, rest)
	}
	list, ok := strings.CutPrefix(rest[dec.InputOffset():], ruleMiddle)
	if !ok {
		t.Fatalf("text after the user: %s", rest)
	}
	if err := json.Unmarshal([]byte(list), &allowed); err != nil {
		t.Fatalf("list: %v in %s", err, list)
	}
	return user, allowed
}

func TestThePolkitRuleListsExactlyTheAllowlist(t *testing.T) {
	tests := map[string]struct {
		units []plan.Unit
		want  [][2]string
	}{
		"nothing allowed": {nil, nil},
		"the order does not matter and a repetition counts once": {
			[]plan.Unit{{Name: "b.service", Verb: plan.Reload}, {Name: "a.service", Verb: plan.Reload}, {Name: "b.service", Verb: plan.Reload}},
			[][2]string{{"a.service", "reload"}, {"b.service", "reload"}}},
		"other verbs are left out": {
			[]plan.Unit{{Name: "a.service", Verb: "start"}, {Name: "b.service", Verb: ""}, {Name: "c.service", Verb: "reload-or-restart"}}, nil},
		"a oneshot may be restarted": {
			[]plan.Unit{{Name: "a.service", Verb: plan.Restart}}, [][2]string{{"a.service", "restart"}}},
		"a quote does not end the string": {
			[]plan.Unit{{Name: "a\"]]; polkit.log(\"\n</script>\u2028", Verb: plan.Reload}},
			[][2]string{{"a\"]]; polkit.log(\"\n</script>\u2028", "reload"}}},
		"a name of every object is no member": {
			[]plan.Unit{{Name: "__proto__", Verb: plan.Reload}}, [][2]string{{"__proto__", "reload"}}},
		"units drawn along are not allowed by themselves": {
			[]plan.Unit{{Name: "a.service", Verb: plan.TryRestart, AlsoAffects: []string{"b.service"}}}, [][2]string{{"a.service", "try-restart"}}},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			user, have := dissect(t, PolkitRule("u", tt.units))
			if user != "u" || !slices.Equal(have, tt.want) {
				t.Errorf("have %q %q, want %q", user, have, tt.want)
			}
		})
	}
}

func FuzzPolkitRuleAllowsNothingThatIsNotListed(f *testing.F) {
	f.Add("node-cert-agent", "crio.service", "reload", "a@b.service", "try-restart")
	f.Add(`"`, "\u2028\n\\", "reload", "*/ //", "start")
	f.Fuzz(func(t *testing.T, user, name, verb, name2, verb2 string) {
		units := []plan.Unit{{Name: name, Verb: plan.Verb(verb)}, {Name: name2, Verb: plan.Verb(verb2)}}
		rule := PolkitRule(user, units)
		haveUser, allowed := dissect(t, rule)
		if haveUser != user && utf8.ValidString(user) {
			t.Errorf("user %q became %q", user, haveUser)
		}
		for _, pair := range allowed {
			listed := slices.ContainsFunc(units, func(u plan.Unit) bool {
				return u.Name == pair[0] && string(u.Verb) == pair[1] && slices.Contains([]plan.Verb{plan.Reload, plan.TryRestart, plan.Restart}, u.Verb)
			})
			// What is not UTF-8 becomes U+FFFD, which no unit name holds.
			if !listed && !strings.ContainsRune(pair[0], utf8.RuneError) {
				t.Errorf("%q is allowed and not listed in %q", pair, units)
			}
		}
		slices.Reverse(units)
		if PolkitRule(user, units) != rule {
			t.Error("the order of the list changes the rule")
		}
		if strings.ContainsAny(rule, "\u2028\u2029\r\x00") || strings.Count(rule, "\n") > strings.Count(rulePrefix+ruleMiddle+ruleSuffix, "\n")+len(allowed)+1 {
			t.Errorf("a name makes a line of its own: %q", rule)
		}
	})
}
