// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
)

// BootstrapDir is where the agent looks for tokens.
const BootstrapDir = "/etc/node-cert-agent/bootstrap.d"

// MakeToken makes a bootstrap token with this id (six letters or digits) that may ask for
// certificates.
func (c *Cluster) MakeToken(ctx context.Context, id string) error { return MakeToken(ctx, c.Plane, id) }

// MakeToken is the same for any control plane.
func MakeToken(ctx context.Context, p *controlplane.Plane, id string) error {
	if err := p.AllowBootstrap(ctx); err != nil {
		return err
	}
	_, err := p.MakeToken(ctx, controlplane.Token{ID: id, Secret: TokenSecret,
		Groups: "system:bootstrappers:node-cert-agent"})
	return err
}

// TokenSecret is the secret half of every token, a marker to be looked for where no secret belongs.
const TokenSecret = "marker0token0sec"

// RevokeToken takes a token back.
func (c *Cluster) RevokeToken(ctx context.Context, id string) error {
	_, err := c.Plane.Kubectl(ctx, "-n", "kube-system", "delete", "secret", "bootstrap-token-"+id)
	return err
}

// PutToken puts a kubeconfig with the token into the host's bootstrap directory, under this name.
func (c *Cluster) PutToken(name, id string) error { return c.PutTokenFor(c.Plane, Server, name, id) }

// PutTokenFor is the same for a control plane that the host finds at this address.
func (c *Cluster) PutTokenFor(p *controlplane.Plane, server, name, id string) error {
	return c.putKubeconfig(name, TokenKubeconfig(p, server, id))
}

// PutBareToken is the same without a CA, for hosts that have a pin instead.
func (c *Cluster) PutBareToken(server, name, id string) error {
	return c.putKubeconfig(name, kubeconfigs.Token(server, nil, id+"."+TokenSecret))
}

// PutTokenWithCA is the same for a server that is verified with another CA than the control plane's.
func (c *Cluster) PutTokenWithCA(server string, ca []byte, name, id string) error {
	return c.putKubeconfig(name, kubeconfigs.Token(server, ca, id+"."+TokenSecret))
}

func (c *Cluster) putKubeconfig(name string, data []byte) error {
	return c.Host.PutFile(BootstrapDir+"/"+name+".kubeconfig", host.File{Mode: 0o600, Data: data})
}

// TokenKubeconfig is a kubeconfig with the token, for whoever finds the control plane at this address.
func TokenKubeconfig(p *controlplane.Plane, server, id string) []byte {
	return kubeconfigs.Token(server, p.CA().PEM(), id+"."+TokenSecret)
}

// Requests lists the agents' requests: name, and the conditions' types joined by commas.
func (c *Cluster) Requests(ctx context.Context) (map[string]string, error) {
	return requests(ctx, c.Plane)
}

func requests(ctx context.Context, p *controlplane.Plane) (map[string]string, error) {
	out, err := p.Kubectl(ctx, "get", "csr", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[*].type}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(out) {
		if name, conditions, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(name, "node-cert-agent-") {
			all[name] = strings.ReplaceAll(conditions, " ", ",")
		}
	}
	return all, nil
}

// Approve approves every request that nobody has decided about.
func (c *Cluster) Approve(ctx context.Context) error { return Decide(ctx, c.Plane, "approve") }

// Deny denies every request that nobody has decided about.
func (c *Cluster) Deny(ctx context.Context) error { return Decide(ctx, c.Plane, "deny") }

// Decide approves or denies every request that nobody has decided about, in any control plane.
func Decide(ctx context.Context, p *controlplane.Plane, verb string) error {
	all, err := requests(ctx, p)
	if err != nil {
		return err
	}
	for name, conditions := range all {
		if conditions == "" {
			if _, err := p.Kubectl(ctx, "certificate", verb, name); err != nil {
				return err
			}
		}
	}
	return nil
}
