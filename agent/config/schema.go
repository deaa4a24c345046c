// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"go.yaml.in/yaml/v3"
)

// apiVersion stands in every file, so that a later format can be told from this one.
const apiVersion = "config.node-cert-agent.io/v1alpha1"

// profileRules is the format of a profile: every key there is, with what it accepts.
var profileRules = branch{
	"apiVersion": oneOf(apiVersion),
	"node":       branch{"name": text(emptyOr(dnsName))},
	"controllerConfig": branch{
		"group":    text(dnsName),
		"version":  text(matches(`v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?`, "an API version such as v1")),
		"resource": text(matches(`[a-z][a-z0-9]{0,62}`, "a resource's plural name in lower case")),
		"name":     text(dnsName),
	},
	"configMap": branch{
		"namespace": text(dnsName),
		"name":      text(dnsName),
		"key":       text(matches(`[-._a-zA-Z0-9]{1,253}`, "a key of a ConfigMap")),
	},
	"files": fileRules(),
	"units": named{unitName, branch{
		"enabled":     leaf(flag),
		"verb":        leaf(verb),
		"alsoAffects": list(alsoName),
	}},
	"actions": branch{
		"batchWindow":     span(0, time.Minute),
		"randomizedDelay": span(0, 24*time.Hour),
		"timeout":         span(time.Second, time.Hour),
	},
	"coexist": list(knownWriter),
	"probe":   branch{"timeout": span(0, 10*time.Minute)},
	"trust": branch{
		"holdRemovals": span(0, 30*24*time.Hour),
		"source":       text(emptyOr(trustSource)),
	},
	"bootstrap": branch{
		"consume":          oneOf("delete", "mark-used", "keep"),
		"kubeletIdentity":  leaf(flag),
		"pollInterval":     span(100*time.Millisecond, time.Hour),
		"idlePollInterval": span(time.Second, 24*time.Hour),
		"followHint":       oneOf("pinned", "always", "never"),
		"pins": list(matches(`sha256:[0-9a-f]{64}`,
			"the pin of a public key, sha256: and 64 hexadecimal digits")),
	},
	"identity": branch{
		"lifetime":        span(10*time.Minute, 90*24*time.Hour),
		"approvalPollMax": span(time.Second, time.Hour),
		"checkInterval":   span(time.Second, 24*time.Hour),
		"suspectAfter":    span(0, 24*time.Hour),
		"deniedMin":       span(time.Second, 24*time.Hour),
		"deniedMax":       span(time.Second, 24*time.Hour),
	},
	"renewal": branch{
		"mode":          oneOf("report", "manual", "renew"),
		"restart":       oneOf("static-pods", "never"),
		"throughEtcd":   leaf(flag),
		"degradedBelow": span(0, 365*24*time.Hour),
		"timeout":       span(time.Second, time.Hour),
		"lifetime":      span(0, 10*365*24*time.Hour),
		"key":           oneOf("new", "reuse"),
		"renewBefore":   span(time.Second, 365*24*time.Hour),
		"warnBefore":    span(time.Second, 365*24*time.Hour),
		"interval":      span(time.Second, 24*time.Hour),
	},
	"resync": span(time.Second, 24*time.Hour),
	"watch": branch{
		"retryJitter": span(0, 5*time.Minute),
		"retryMax":    span(100*time.Millisecond, 10*time.Minute),
		"idleTimeout": span(time.Second, time.Hour),
		"timeout":     span(time.Second, 24*time.Hour),
	},
}

// fragmentRules is the format of a fragment, which may also choose the profile.
var fragmentRules = func() branch {
	b := maps.Clone(profileRules)
	b["profile"] = text(matches(`[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`, "a profile's name in lower case"))
	return b
}()

func fileRules() branch {
	specs := branch{}
	for _, id := range plan.Fields() {
		spec := branch{
			"enabled":    leaf(flag),
			"path":       text(func(s string) error { return checkFile(id, s) }),
			"mode":       leaf(mode),
			"owner":      leaf(owner),
			"followLink": leaf(flag),
			"onChange":   list(unitName),
			"validate":   oneOf("warn", "strict"),
			"verify":     leaf(consumers),
		}
		switch {
		case id.Edits():
			spec["mode"], spec["owner"] = kept, kept
		case id.Secret():
			spec["mode"] = leaf(secretMode)
		}
		specs[string(id)] = spec
	}
	return specs
}

// knownWriter accepts the programs beside which we know how to work.
func knownWriter(s string) error {
	if w := plan.Writer(s); w != plan.MachineConfigDaemon && w != plan.NodeCA {
		return fmt.Errorf("%.64q is not known; want %s or %s", s, plan.MachineConfigDaemon, plan.NodeCA)
	}
	return nil
}

// absent stands at a key that other branches of the kind have, and this one has not.
type absent struct{ why string }

var kept = absent{"this field's file is there and is edited, and keeps its mode and owner"}

func (a absent) apply(f *fragment, key string, n *yaml.Node) {
	f.fail(n, key, "not possible: %s", a.why)
}

// trustSource accepts the fields with one bundle of CAs.
func trustSource(s string) error {
	id := plan.Field(s)
	if !slices.Contains(plan.Fields(), id) || id.List() || id.Secret() {
		return fmt.Errorf("%.64q is no field with one bundle of CAs", s)
	}
	return nil
}

// text is a string that check accepts.
func text(check func(string) error) leaf {
	return func(n *yaml.Node) (any, error) {
		s, err := str(n)
		if err != nil {
			return nil, err
		}
		return s, check(s)
	}
}

// str does not turn numbers, dates and the like into strings: YAML 1.1 and 1.2 readers differ about
// how these look, and a quoted value is the same for all.
func str(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return "", fmt.Errorf("want a string, in quotes if need be; have %s", describe(n))
	}
	return n.Value, nil
}

func flag(n *yaml.Node) (any, error) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		return nil, fmt.Errorf("want true or false, have %s", describe(n))
	}
	return strings.ToLower(n.Value) == "true", nil
}

// list is a list of different strings that check accepts; it may be empty.
func list(check func(string) error) leaf {
	return func(n *yaml.Node) (any, error) {
		if n.Kind != yaml.SequenceNode {
			return nil, fmt.Errorf("want a list such as [crio.service], have %s", describe(n))
		}
		var all []string
		for _, e := range n.Content {
			s, err := str(e)
			if err == nil && slices.Contains(all, s) {
				err = fmt.Errorf("%q is listed twice", s)
			}
			if err == nil {
				err = check(s)
			}
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
		return all, nil
	}
}

func oneOf[T ~string](allowed ...T) leaf {
	return func(n *yaml.Node) (any, error) {
		s, err := str(n)
		if err == nil && !slices.Contains(allowed, T(s)) {
			err = fmt.Errorf("%.64q is not possible; want %s", s, strings.Trim(fmt.Sprintf("%q", allowed), "[]"))
		}
		return T(s), err
	}
}

func span(shortest, longest time.Duration) leaf {
	return func(n *yaml.Node) (any, error) {
		d, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || d < shortest || d > longest {
			return nil, fmt.Errorf("want a duration from %v to %v, such as 500ms, 90s or 10m", shortest, longest)
		}
		return d, nil
	}
}

func mode(n *yaml.Node) (any, error) {
	s, err := str(n)
	if err != nil {
		return nil, errors.New(`want a mode in quotes, such as "0644"`)
	}
	bits, err := strconv.ParseUint(s, 8, 32)
	switch {
	case err != nil || len(s) != 4 || s[0] != '0':
		return nil, errors.New(`want a 0 and three octal digits in quotes, such as "0644"; special bits are not possible`)
	case bits&0o022 != 0:
		return nil, fmt.Errorf("%s lets group or others write what root trusts; want at most \"0755\"", s)
	case bits&0o400 == 0:
		return nil, fmt.Errorf("%s keeps the owner from reading the file", s)
	}
	return fs.FileMode(bits), nil
}

// secretMode is mode for content that only the file's owner may read.
func secretMode(n *yaml.Node) (any, error) {
	m, err := mode(n)
	if err == nil && m.(fs.FileMode)&0o077 != 0 {
		err = fmt.Errorf("%04o lets others read a secret; want \"0600\" or \"0400\"", m)
	}
	return m, err
}

// ids are the owner and group of a file.
type ids struct{ uid, gid int }

// owner takes numbers and root. Other names would need the host's user database, which another process
// of the agent or another root may see differently.
func owner(n *yaml.Node) (any, error) {
	bad := errors.New(`want "root:root" or "UID:GID" in numbers; other names are not looked up`)
	s, err := str(n)
	user, group, ok := strings.Cut(s, ":")
	if err != nil || !ok {
		return nil, bad
	}
	var id [2]int
	for i, name := range []string{user, group} {
		if name == "root" {
			continue
		}
		// The highest number means "unchanged" to chown(2).
		v, err := strconv.ParseUint(name, 10, 32)
		if err != nil || v >= 1<<32-1 {
			return nil, bad
		}
		id[i] = int(v)
	}
	return ids{id[0], id[1]}, nil
}

// matches accepts what the whole pattern matches; what names it in problems. It compiles the pattern
// when it needs it: compiled, these few take 130 KB, which both halves would hold for ever.
func matches(pattern, what string) func(string) error {
	return func(s string) error {
		if !regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString(s) {
			return fmt.Errorf("%.64q is not %s", s, what)
		}
		return nil
	}
}

func dnsName(s string) error {
	if !csr.IsDNSName(s) {
		return fmt.Errorf("%.64q is not a lower-case DNS name", s)
	}
	return nil
}

func emptyOr(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}
