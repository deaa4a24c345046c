// SPDX-License-Identifier: Apache-2.0

package identity

import "context"

// relearn finds other CAs for the server of the credential in hand.
func (k *Keeper) relearn(ctx context.Context) error {
	c := k.asker.config.cluster()
	if err := k.learn(ctx, &c); err != nil {
		return err
	}
	k.asker.config.pinned = c.Pinned
	l, err := k.connect(k.asker.config)
	if err != nil {
		return err
	}
	k.asker.link.close()
	k.asker.link = l
	return nil
}

// mend finds other CAs for the server of the identity in use, which failed with a. It gives the link and
// the answer that came of it. Only a server that then knows us by our name is believed from now on, and
// that is durable first.
func (k *Keeper) mend(ctx context.Context, failed *link, a answer) (*link, answer) {
	g := *k.current
	if err := k.learn(ctx, &g.Cluster); err != nil {
		a.reason += "; " + err.Error()
		return failed, a
	}
	l, err := k.open(&g)
	if err != nil {
		a.reason += "; " + err.Error()
		return failed, a
	}
	if a = k.api.whoami(ctx, l); a.verdict() != accepted || a.user != k.user() {
		return l, a
	}
	used, err := k.open(&g)
	if err == nil {
		err = k.store.write(currentFile, &g)
	}
	if err != nil {
		return l, answer{reason: err.Error()}
	}
	k.use(ctx, &g, used)
	return l, a
}
