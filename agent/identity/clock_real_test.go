// SPDX-License-Identifier: Apache-2.0

//go:build real

package identity

import (
	"context"
	"crypto/x509"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
)

// wrong is a host's clock that is off by so much.
type wrong time.Duration

func (w wrong) Now() time.Time                         { return time.Now().Add(time.Duration(w)) }
func (w wrong) After(d time.Duration) <-chan time.Time { return time.After(d) }

// hourOld starts the plane with a certificate for localhost that began an hour ago, since a server is
// seldom as new as its cluster is in a test. It gives the server's address.
func hourOld(ctx context.Context, t *testing.T) (*controlplane.Plane, string) {
	t.Helper()
	dir := t.TempDir()
	p, err := controlplane.Start(ctx, controlplane.Options{APIServerOff: true,
		APIServerArgs: []string{"--tls-sni-cert-key=" + dir + "/sni.crt," + dir + "/sni.key:localhost"}})
	must(t, err)
	t.Cleanup(func() { must(t, p.Stop()) })
	pair := p.CA().Issue(x509.Certificate{DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour)})
	must(t, os.WriteFile(dir+"/sni.crt", pair.Cert, 0o600))
	must(t, os.WriteFile(dir+"/sni.key", pair.Key, 0o600))
	must(t, p.StartAPIServer(ctx))
	for _, step := range []func(context.Context) error{p.InstallCRD, p.AllowAgents, p.AllowBootstrap} {
		must(t, step(ctx))
	}
	makeToken(ctx, t, p)
	u, err := url.Parse(p.URL())
	must(t, err)
	return p, "https://localhost:" + u.Port()
}

func TestWithAClockThatIsHoursOffTheIdentityIsGotKeptAndRenewed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	p, server := hourOld(ctx, t)
	go approver(ctx, t, p)
	for sentence, off := range map[string]time.Duration{"slow": -9 * time.Hour, "fast": 9 * time.Hour,
		"years slow": -20 * 365 * 24 * time.Hour} {
		t.Run(sentence, func(t *testing.T) {
			trail, w := &counting{}, newEnv(t) // of which only the state directory is used
			o := Options{Node: "worker-" + strings.ReplaceAll(sentence, " ", "-"), Dir: w, Trail: trail, Lifetime: time.Hour,
				Clock:      wrong(off),
				Credential: secret.New(kubeconfigs.Token(server, p.CA().PEM(), bearer))}
			for life := range 2 { // the second begins with the identity of the first, and renews it at once
				ctx, stop := context.WithCancel(ctx)
				if life == 1 {
					loaded := ""
					o.renewal = func(g *generation) time.Time {
						if serial := g.leaf.SerialNumber.Text(16); loaded == "" || loaded == serial {
							loaded = serial
							return g.Received
						}
						return renewal(g.leaf, g.Received)
					}
				}
				m := New(o)
				ended := make(chan struct{})
				go func() { m.Run(ctx); close(ended) }()
				wantSettled(ctx, t, m, off, func(s Status) bool { return s.State == Active && int(trail.renewed.Load()) == life })
				stop()
				<-ended
			}
			if n := trail.others.Load(); n > 0 {
				t.Errorf("%d records of trouble", n)
			}
			if slices.ContainsFunc(slices.Collect(maps.Keys(w.dir)), func(name string) bool {
				return strings.HasSuffix(name, bad)
			}) {
				t.Error("a file was set aside")
			}
		})
	}
}

// wantSettled waits, and wants the renewal to be planned for the certificate's last third in true time.
func wantSettled(ctx context.Context, t *testing.T, m *Manager, off time.Duration, settled func(Status) bool) {
	t.Helper()
	for {
		select {
		case <-ctx.Done():
			t.Fatal("it does not settle in time")
		case s := <-m.Readings():
			if !settled(s) {
				t.Logf("%s: %s", s.State, s.Reason)
				continue
			}
			renew := time.Until(s.Renew.Add(-off))
			if left := time.Until(s.Expires); renew > left || renew < left/2 {
				t.Errorf("the renewal comes after %v, the end after %v", renew, left)
			}
			return
		}
	}
}
