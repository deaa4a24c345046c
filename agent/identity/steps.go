// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
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
	fresh, refused := k.ladder.climb(k.before(), files, k.known())
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
	if k.consumed && (k.state == Active || k.renewing) {
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
func (k *Keeper) known() *cluster {
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
	l, err := newLink(c)
	if err != nil {
		return nil
	}
	return &credential{name: name, content: serial, config: c, link: l}
}

// consume takes the credential that the identity came from out of use. It is tried again at the next
// look if it fails or the agent is killed before it: the identity remembers where it came from.
func (k *Keeper) consume(ctx context.Context) {
	if k.consumed || k.current == nil || k.opt.Bootstrap == nil {
		return
	}
	done, err := k.opt.Bootstrap.Consume(ctx, k.current.Credential)
	if k.leftover = ""; err != nil {
		k.leftover = "the bootstrap credential that has served is still there: " + err.Error()
		return
	}
	if done != "" {
		k.tell(audit.CredentialConsumed, "the bootstrap credential has served: "+done, audit.Field{Name: audit.Credential, Value: k.current.Credential})
	}
	// The same content may come again, and then it is there to be used.
	settled := *k.current
	settled.Credential = ""
	if err := k.store.write(currentFile, &settled); err != nil {
		k.leftover = err.Error()
		return
	}
	k.current, k.consumed = &settled, true
}

// elsewhere is a bootstrap file that leads to another cluster than the one where the identity works:
// the cluster has moved. Only a file later in name than the one that led here counts, or that one with
// other content: of two files that are kept, we would else go from one to the other for ever.
func (k *Keeper) elsewhere() *credential {
	now, from := k.opt.Clock.Now(), k.current.Origin
	for _, c := range k.ladder.rungs {
		later := c.name > from.Name || c.name == from.Name && c.digest != from.Digest
		if there := c.config.cluster(); c.digest != "" && later && !now.Before(c.refused) && !there.same(k.current.Cluster) {
			return c
		}
	}
	return nil
}

// noCredential waits for somebody as whom to ask.
func (k *Keeper) noCredential(ctx context.Context) move {
	if k.current != nil {
		if m, h := k.prober(ctx); h == holds {
			return m
		}
	}
	if k.ladder.next(k.opt.Clock.Now()) != nil {
		return move{Requesting, "", 0}
	}
	return move{NoCredential, k.ladder.why(), k.opt.Times.Look}
}

// requesting makes the request, or finds the one that an earlier try made.
func (k *Keeper) requesting(ctx context.Context) move {
	now := k.opt.Clock.Now()
	if now.Before(k.penalty) {
		return move{Requesting, k.reason, min(k.penalty.Sub(now), k.opt.Times.Look)}
	}
	if !k.penalty.IsZero() {
		if err := k.forget(); err != nil {
			return move{Requesting, err.Error(), k.pause()}
		}
	}
	switch k.asker = nil; {
	case k.moving:
		if k.asker = k.elsewhere(); k.asker == nil {
			k.moving = false
			if err := k.forget(); err != nil {
				return move{Active, err.Error(), 0} // and the key serves for an early renewal
			}
			return move{Active, k.reason, 0}
		}
	case !k.renewing:
		if k.asker = k.ladder.next(now); k.asker == nil {
			return move{NoCredential, k.ladder.why(), 0}
		}
	}
	if err := k.prepare(); err != nil {
		return move{Requesting, err.Error(), k.pause()}
	}
	a := k.api.create(ctx, k.link(), k.request)
	switch a.verdict() {
	case accepted:
		k.tell(audit.RequestCreated, "asked for a certificate "+k.by(), k.fields()...)
		return move{Pending, "waiting for approval", k.opt.Times.PendingMin}
	case exists:
		return move{Pending, "waiting for approval", 0}
	}
	return k.trouble(ctx, Requesting, a)
}

// prepare makes the key durable before anybody hears of it, and builds the request.
func (k *Keeper) prepare() error {
	if k.pending == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return fmt.Errorf("making a key: %v", err)
		}
		p := &pending{key, requestNotes{k.opt.Node, int32(k.opt.Lifetime / time.Second)}}
		if err := k.store.keepPending(p); err != nil {
			return err
		}
		k.pending, k.request = p, request{}
	}
	if k.request.name == "" {
		pem, err := csr.Build(k.pending.Node, k.pending.key, rand.Reader)
		if err != nil {
			return err
		}
		if k.request, err = k.pending.request(pem); err != nil {
			return err
		}
	}
	return nil
}

// forget gives up the pending key; the next request is another one.
func (k *Keeper) forget() error {
	if err := k.store.dropPending(); err != nil {
		return err
	}
	k.pending, k.request, k.penalty = nil, request{}, time.Time{}
	return nil
}

// waiting looks at the request. However long the approver stays away, it is the same object.
func (k *Keeper) waiting(ctx context.Context) move {
	if k.current != nil && !k.renewing && !k.moving && !k.opt.Clock.Now().Before(k.probe) {
		if m, h := k.prober(ctx); h == holds {
			return m // it was an API server that was behind
		}
	}
	if !k.renewing && !slices.Contains(k.ladder.rungs, k.asker) {
		return move{Requesting, "the bootstrap file " + k.asker.name + " is gone", 0}
	}
	a := k.api.get(ctx, k.link(), k.request.name)
	switch a.verdict() {
	case accepted:
	case gone: // the cluster forgets pending requests after a day; most likely it is to be made again
		k.vanished++
		return move{Requesting, "the request is gone", backoff(k.opt.Times.PendingMin, k.opt.Times.PendingMax, k.vanished, k.opt.Rand())}
	default:
		return k.trouble(ctx, Pending, a)
	}
	if !k.request.same(a.request) {
		return k.deny("another request has the name of ours")
	}
	stage, why := a.request.stage()
	switch stage {
	case denied:
		return k.deny(why)
	case issued:
		return k.take(a.request.certificate)
	}
	k.failures++
	return move{Pending, why + ", as " + k.request.name, backoff(k.opt.Times.PendingMin, k.opt.Times.PendingMax, k.failures, k.opt.Rand())}
}

// deny makes the pause that a denial asks for. The key stays until it is over, so that a restart
// meets the same denied request and does not ask at once for another.
func (k *Keeper) deny(why string) move {
	wait := backoff(k.opt.Times.DeniedMin, k.opt.Times.DeniedMax, k.denials, k.opt.Rand())
	k.denials++
	k.penalty = k.opt.Clock.Now().Add(wait)
	k.tell(audit.RequestDenied, "the request for a certificate came to nothing", append(k.fields(), audit.Field{Name: audit.Reason, Value: why})...)
	return move{Requesting, fmt.Sprintf("%s; asking again at %s", why, k.penalty.UTC().Format(time.RFC3339)), min(wait, k.opt.Times.Look)}
}

// take accepts what was issued, if it is what was asked for.
func (k *Keeper) take(certificate []byte) move {
	g := &generation{cert: certificate, generationNotes: generationNotes{Received: k.opt.Clock.Now().UTC().Round(0)}}
	if k.renewing {
		if g.Cluster = k.current.Cluster; !k.consumed {
			g.Credential = k.current.Credential
		}
	} else {
		g.Cluster, g.Credential = k.asker.config.cluster(), k.asker.digest
	}
	if k.current != nil {
		g.Origin = k.current.Origin
	}
	if g.Credential != "" && !k.renewing {
		g.Origin = origin{k.asker.name, k.asker.digest}
	}
	key, err := k.pending.encode()
	if err == nil {
		var blocks map[string][]byte
		if blocks, err = split(key); err == nil {
			g.key = secret.New(blocks["PRIVATE KEY"])
			err = g.check(k.opt.Node)
		}
	}
	if err != nil {
		return k.deny("what was issued cannot be used: " + err.Error())
	}
	k.fresh, k.prove = g, k.opt.Clock.Now().Add(k.opt.Times.Prove)
	k.tell(audit.IdentityIssued, "a certificate was issued", k.certificate(g)...)
	return move{Proving, "", 0}
}

// proving asks over a connection that nobody has used who we are with the new certificate.
func (k *Keeper) proving(ctx context.Context) move {
	l, err := k.open(k.fresh)
	if err != nil {
		return k.deny("what was issued cannot be used: " + err.Error())
	}
	a := k.api.whoami(ctx, l)
	if v := a.verdict(); v == accepted && a.user == k.user() {
		return k.commit(ctx, l)
	} else if l.close(); v == accepted {
		return k.deny(fmt.Sprintf("the server takes the new certificate for %.128q", a.user))
	} else if v == unknown && k.opt.Clock.Now().After(k.prove) {
		return k.deny("the server does not know the new certificate: " + a.reason)
	}
	return move{Proving, "the new certificate is not accepted yet: " + a.reason, max(k.pause(), a.after)}
}

// commit makes the proven identity durable and puts it to use. Only then does anything old go.
func (k *Keeper) commit(ctx context.Context, l *link) move {
	if err := k.store.commit(k.fresh, k.current); err != nil {
		l.close()
		return move{Proving, err.Error(), k.pause()}
	}
	kind, message := audit.IdentityProven, "the API server knows this node as "+k.user()
	if k.renewing {
		kind, message = audit.IdentityRenewed, "the identity was renewed"
	}
	if k.current != nil {
		k.previous = k.current
	}
	k.use(ctx, k.fresh, l)
	if k.proven = true; k.renewable {
		k.probe = k.opt.Clock.Now().Add(k.opt.Times.Probe)
	}
	k.fresh, k.denials, k.vanished = nil, 0, 0
	k.tell(kind, message, k.certificate(k.current)...)
	if err := k.forget(); err != nil {
		k.pending = nil // the next start finds that its certificate is in use, and forgets it then
	}
	k.consume(ctx)
	return move{Active, k.remarks(), k.untilNext()}
}
