// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
)

// migration is where the ControllerConfig says that its cluster will be.
type migration struct {
	text string // the hint as it was last heard
	hint *hint  // what the last one said that could be read
	note string // what came of it, for the status
	// preferredUntil is until when a renewal that fails gives way to a migration.
	preferredUntil time.Time
}

// migrationTarget is a credential that leads to another cluster than the one where the identity works: the
// cluster has moved. Only a file later in name than the one that led here counts, or that one with
// other content: of two files that are kept, we would else go from one to the other for ever. What a
// file says, which is root's, comes before a hint.
func (k *Keeper) migrationTarget() (found *requester) {
	now, from := k.opt.Clock.Now(), k.current.Origin
	for _, c := range k.credentials.list {
		later := c.Name > from.Name || c.Name == from.Name && c.Digest != from.Digest
		switch there := c.config.Cluster(); {
		case now.Before(c.refused) || there.Same(k.current.Cluster):
		case c.consumable() && later:
			return c
		case c.announced && !k.wouldFlapBack(there):
			found = c
		}
	}
	return found
}

// mayMigrate reports whether something leads to another cluster, and where that was only announced, whether we are
// known there.
func (k *Keeper) mayMigrate(ctx context.Context) bool {
	c := k.migrationTarget()
	return c != nil && (!c.announced || k.probeTarget(ctx, c))
}

// announced is the name of the identity in use as somebody at the announced cluster.
const announced = "the present identity, at the announced cluster"

// hintCredential is the identity as somebody who may ask at the announced cluster; nil if there is none, or if it
// is where we are. It has a certificate and no token: what is sent there cannot be used by who gets it.
func (k *Keeper) hintCredential() *requester {
	g := k.current
	if g == nil {
		g = k.previous
	}
	if k.migration.hint == nil || g == nil {
		return nil
	}
	to, err := k.migration.hint.cluster(g.Cluster, k.pins)
	if err != nil {
		k.migration.note = "the announced cluster " + err.Error()
		return nil
	}
	if to.Same(g.Cluster) {
		k.migration.note = ""
		return nil
	}
	content := g.leaf.SerialNumber.Text(16) + "\x00" + k.migration.text
	if c := k.credentials.find(announced, content); c != nil {
		return c
	}
	there := *g
	there.Cluster = to
	conf, err := there.config()
	if err != nil {
		return nil
	}
	conn, err := k.connect(conf)
	if err != nil {
		return nil
	}
	return &requester{ID: bootstrap.ID{Name: announced}, content: content, config: conf, conn: conn, announced: true}
}

// probeTarget asks the announced cluster whether it knows us, before anything is asked for there. If it does
// not it is left alone for a time, and the identity goes on where it is.
func (k *Keeper) probeTarget(ctx context.Context, c *requester) bool {
	a := k.api.whoami(ctx, c.conn)
	wait := k.opt.Times.RetryMax
	switch {
	case a.verdict() == accepted && a.user == k.user():
		k.migration.note = ""
		return true
	case a.verdict() == accepted:
		a.reason = fmt.Sprintf("the server takes our certificate for %.128q", a.user)
		fallthrough
	case a.status != 0:
		wait = k.opt.Times.Refused
	}
	k.leaveAlone(c, max(wait, a.after), a.reason)
	k.migration.note = "the announced cluster does not take us yet: " + a.reason
	return false
}

// wouldFlapBack reports whether the hint leads back to where we have just come from. Two clusters that
// announce each other would else be visited in turn without a pause.
func (k *Keeper) wouldFlapBack(to apiserver.Cluster) bool {
	recent := k.opt.Clock.Now().Before(k.current.Received.Add(k.opt.Times.IdlePollInterval))
	return k.previous != nil && to.Same(k.previous.Cluster) && recent
}
