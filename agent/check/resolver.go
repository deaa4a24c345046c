// SPDX-License-Identifier: Apache-2.0

package check

import (
	"net/netip"
	"slices"
	"strings"
)

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
