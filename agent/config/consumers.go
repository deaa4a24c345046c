// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"go.yaml.in/yaml/v3"
)

// consumerKeys is the format of one entry of a field's verify.
var consumerKeys = map[string]leaf{
	"kind":     oneOf(liveness.ClientCA, liveness.Serving, liveness.APIServer),
	"address":  text(checkAddress),
	"others":   flag,
	"mismatch": oneOf(liveness.Stale, liveness.Unknown),
}

// consumers is a list of servers to ask; it may be empty.
func consumers(n *yaml.Node) (any, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf(`want a list such as [{kind: clientCA, address: "127.0.0.1:10250"}], have %s`, describe(n))
	}
	var all []liveness.Consumer
	for i, e := range n.Content {
		c, err := consumer(e)
		if err == nil && slices.ContainsFunc(all, func(o liveness.Consumer) bool {
			return o.Kind == c.Kind && o.Address == c.Address
		}) {
			err = fmt.Errorf("asks %s the same as another", c.Address)
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		all = append(all, c)
	}
	return all, nil
}

func consumer(n *yaml.Node) (liveness.Consumer, error) {
	// What a fragment is made of is plain, and so is what stands in a list of it.
	f := &fragment{in: inputs{}}
	f.pairs("", n, func(key, name string, k, v *yaml.Node) {
		if check, ok := consumerKeys[name]; ok {
			check.apply(f, key, v)
		} else {
			f.fail(k, key, "unknown key; want one of kind, address, others, mismatch")
		}
	})
	for _, p := range f.problems {
		if one := (*Error)(nil); errors.As(p, &one) {
			return liveness.Consumer{}, errors.New(strings.TrimPrefix(one.Key+": "+one.Problem, ": "))
		}
	}
	c := liveness.Consumer{Kind: value[liveness.Kind](f.in, "kind"), Address: value[string](f.in, "address"),
		Others: value[bool](f.in, "others"), Mismatch: value[liveness.State](f.in, "mismatch")}
	switch {
	case c.Kind == "":
		return c, errors.New("kind: missing; want clientCA, serving or apiserver")
	case c.Address == "":
		return c, errors.New(`address: missing; want an IP address and a port, such as "127.0.0.1:10250"`)
	case c.Others && c.Kind != liveness.ClientCA:
		return c, fmt.Errorf("others: only a %s server announces CAs", liveness.ClientCA)
	case c.Mismatch == "":
		c.Mismatch = liveness.Stale
	}
	return c, nil
}

// checkAddress takes no names: looking one up would ask the network where this host is. Which
// addresses are this host's is not known before it is asked, and is for the administrator to know.
func checkAddress(s string) error {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().IsMulticast() || a.Addr().Zone() != "" ||
		a.String() != s {
		return fmt.Errorf(`%.64q is not an IP address of this host and a port, such as "127.0.0.1:10250" or "[::1]:10250"`, s)
	}
	return nil
}
