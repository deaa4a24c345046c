// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// look asks for bootstrap files, if it is time to. A file that was not there before ends the pause
// after a denial: somebody did something about it.
func (k *Keeper) look(ctx context.Context) {
	now, every := k.opt.Clock.Now(), k.every()
	if k.opt.Node == "" || !k.looked.IsZero() && now.Sub(k.looked) < every {
		return
	}
	files, err := k.files(ctx)
	if err != nil {
		k.ladder.faults = []string{"asking for bootstrap files: " + err.Error()}
		k.looked = now.Add(k.opt.Times.Look - every)
		return
	}
	k.looked = now
	fresh, refused := k.ladder.climb([]*credential{k.before(), k.ahead()}, files, k.known())
	if len(fresh) > 0 && !k.penalty.IsZero() {
		k.penalty, k.denials = now, 0
	}
	for _, f := range refused {
		if key := f.Name + "\x00" + f.Digest + "\x00" + f.Refused; !k.reported[key] {
			k.reported[key] = true
			k.tell(audit.CredentialRefused, "bootstrap file "+f.Name+" cannot be used", audit.Field{Name: audit.Credential, Value: f.Name},
				audit.Field{Name: audit.Reason, Value: f.Refused})
		}
	}
	if k.proven {
		k.consume(ctx)
	}
}

// every is how often the files are looked at: seldom while there is nothing to do about them.
func (k *Keeper) every() time.Duration {
	if k.consumed && (k.state == Active || k.renewing && k.state != Suspect) && !k.opt.Clock.Now().Before(k.barred) {
		return k.opt.Times.Glance
	}
	return k.opt.Times.Look
}

func (k *Keeper) files(ctx context.Context) (files []File, err error) {
	if k.opt.Bootstrap != nil {
		if files, err = k.opt.Bootstrap.Bootstrap(ctx); err != nil {
			return nil, err
		}
	}
	if k.opt.Credential.Len() > 0 {
		files = append(files, File{Name: "systemd credential", Content: k.opt.Credential})
	}
	return files, nil
}

// known is the cluster of the identity that we have or had.
func (k *Keeper) known() *apiserver.Cluster {
	for _, g := range []*generation{k.current, k.previous} {
		if g != nil {
			return &g.Cluster
		}
	}
	return nil
}

// before is the previous identity, as somebody who may ask for the next one.
func (k *Keeper) before() *credential {
	const name = "the previous identity"
	if k.previous == nil || k.opt.Clock.Now().After(k.previous.leaf.NotAfter) {
		return nil
	}
	serial := k.previous.leaf.SerialNumber.Text(16)
	if c := k.ladder.find(name, serial); c != nil {
		return c
	}
	c, err := k.previous.config()
	if err != nil {
		return nil
	}
	l, err := k.connect(c)
	if err != nil {
		return nil
	}
	return &credential{name: name, content: serial, config: c, link: l}
}

// elsewhere is a credential that leads to another cluster than the one where the identity works: the
// cluster has moved. Only a file later in name than the one that led here counts, or that one with
// other content: of two files that are kept, we would else go from one to the other for ever. What a
// file says, which is root's, comes before a hint.
func (k *Keeper) elsewhere() (found *credential) {
	now, from := k.opt.Clock.Now(), k.current.Origin
	for _, c := range k.ladder.rungs {
		later := c.name > from.Name || c.name == from.Name && c.digest != from.Digest
		switch there := c.config.Cluster(); {
		case now.Before(c.refused) || there.Same(k.current.Cluster):
		case c.digest != "" && later:
			return c
		case c.announced && !k.returns(there):
			found = c
		}
	}
	return found
}
