// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// pollCredentials asks for bootstrap files, if it is time to. A file that was not there before ends the pause
// after a denial: somebody did something about it.
func (k *Keeper) pollCredentials(ctx context.Context) {
	now, every := k.opt.Clock.Now(), k.pollInterval()
	if k.opt.Node == "" || !k.credentials.polled.IsZero() && now.Sub(k.credentials.polled) < every {
		return
	}
	files, err := k.files(ctx)
	if err != nil {
		k.credentials.faults = []string{"asking for bootstrap files: " + err.Error()}
		k.credentials.polled = now.Add(k.opt.Times.PollInterval - every)
		return
	}
	k.credentials.polled = now
	fresh, refused := k.credentials.refresh([]*requester{k.previousCredential(), k.hintCredential()}, files, k.known())
	if len(fresh) > 0 && !k.attempt.backoffUntil.IsZero() {
		k.attempt.backoffUntil, k.attempt.denials = now, 0
	}
	for _, f := range refused {
		if key := f.Name + "\x00" + f.Digest.String() + "\x00" + f.Refused; !k.credentials.reported[key] {
			k.credentials.reported[key] = true
			k.tell(audit.CredentialRefused, "bootstrap file "+f.Name+" cannot be used",
				audit.Field{Name: audit.Credential, Value: f.Name}, audit.Field{Name: audit.Reason, Value: f.Refused})
		}
	}
	if k.health.proven {
		k.consume(ctx)
	}
}

// pollInterval is how often the files are looked at: seldom while there is nothing to do about them.
func (k *Keeper) pollInterval() time.Duration {
	works := k.state == Active || k.attempt.purpose == renewing && k.state != Suspect
	preferred := k.opt.Clock.Now().Before(k.migration.preferredUntil)
	if k.credentials.consumed && works && !preferred {
		return k.opt.Times.IdlePollInterval
	}
	return k.opt.Times.PollInterval
}

func (k *Keeper) files(ctx context.Context) (files []bootstrap.Credential, err error) {
	if k.opt.Bootstrap != nil {
		if files, err = k.opt.Bootstrap.Bootstrap(ctx); err != nil {
			return nil, err
		}
	}
	if k.opt.Credential.Len() > 0 {
		id := bootstrap.ID{Name: "systemd credential"} // of which there is nothing to consume
		files = append(files, bootstrap.Credential{ID: id, Content: k.opt.Credential})
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

// previousCredential is the previous identity, as somebody who may ask for the next one.
func (k *Keeper) previousCredential() *requester {
	const name = "the previous identity"
	if k.previous == nil || k.opt.Clock.Now().After(k.previous.leaf.NotAfter) {
		return nil
	}
	serial := k.previous.leaf.SerialNumber.Text(16)
	if c := k.credentials.find(name, serial); c != nil {
		return c
	}
	c, err := k.previous.config()
	if err != nil {
		return nil
	}
	conn, err := k.connect(c)
	if err != nil {
		return nil
	}
	return &requester{ID: bootstrap.ID{Name: name}, content: serial, config: c, conn: conn}
}

// consume takes the credential that the identity came from out of use. It is tried again at the next
// look if it fails or the agent is killed before it: the identity remembers where it came from. If it is killed
// after it, the record is missing here; the writer has left its own before.
func (k *Keeper) consume(ctx context.Context) {
	if k.credentials.consumed || k.current == nil || k.opt.Bootstrap == nil {
		return
	}
	done, err := k.opt.Bootstrap.Consume(ctx, k.current.Credential)
	k.credentials.cleanupError = ""
	if err != nil {
		k.credentials.cleanupError = "the bootstrap credential that has served is still there: " + err.Error()
		return
	}
	if done != "" {
		k.tell(audit.CredentialConsumed, "the bootstrap credential has served: "+done,
			audit.Field{Name: audit.Credential, Value: k.current.Credential.String()})
	}
	// The same content may come again, and then it is there to be used.
	settled := *k.current
	settled.Credential = plan.Digest{}
	if err := k.store.write(currentFile, &settled); err != nil {
		k.credentials.cleanupError = err.Error()
		return
	}
	k.current, k.credentials.consumed = &settled, true
}
