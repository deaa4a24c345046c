// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/identity"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

// FollowIdentity follows the ControllerConfig until ctx ends, with an identity of our own: got from a bootstrap
// credential, kept in the state directory, renewed by it. As soon as there is one, onUsable runs beside it, with a
// client that authenticates as that identity.
func (s *Source) FollowIdentity(ctx context.Context, o identity.Options,
	onUsable func(context.Context, *http.Client, *url.URL)) {
	m := identity.New(o)
	s.trust.use(m.Prove, m.Trust)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.Run(ctx) })
	var w watches
	last := desired.Reading{State: NoIdentity}
	for {
		select {
		case <-ctx.Done():
			return
		case st := <-m.Readings():
			now := publicStatus(st)
			if last.Identity != nil && *last.Identity == now {
				continue
			}
			last.Identity = &now
			if w.object == nil {
				last.Reason = strings.TrimSuffix(string(now.State)+": "+now.Reason, ": ")
			}
			if st.Usable && w.object == nil {
				w = s.watchAs(m)
				wg.Go(func() { w.run(ctx) })
				wg.Go(func() { onUsable(ctx, m.HTTPClient(), m.Server()) })
			}
			s.offer(last)
		case r := <-w.object:
			if r.Object != nil {
				m.Hint(r.Object.Annotations[identity.HintAnnotation])
			}
			last = s.handle(&s.object, r, last)
		case r := <-w.configMap:
			last = s.handle(&s.configMap, r, last)
		}
	}
}

// watchAs makes the watches, which are opened anew when another identity takes over.
func (s *Source) watchAs(m *identity.Manager) watches {
	select {
	case <-m.Rotated(): // by the first identity, which nobody used before
	default:
	}
	return s.watches(watch.Options{Client: m.HTTPClient(), Server: m.Server(), Reopen: m.Rotated()})
}

// handle takes a reading of one input, and offers and returns the joined one, with the identity of the last.
func (s *Source) handle(in *input, r watch.Reading, last desired.Reading) desired.Reading {
	now := s.update(in, r)
	now.Identity = last.Identity
	s.offer(now)
	now.Desired = nil
	return now
}

// publicStatus is a status as it is published. What it quotes of others is escaped and cut.
func publicStatus(s identity.Status) report.Identity {
	return report.Identity{State: report.IdentityState(s.State), Reason: printable.Text(s.Reason), Serial: s.Serial,
		PublicKey: s.PublicKey, Issued: s.Issued.UTC(), Expires: s.Expires.UTC(), Renew: s.Renew.UTC()}
}
