// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

// ErrUnproven means that a pair was replaced and restored, since nobody was seen to accept it.
var ErrUnproven = errors.New("it was not proven, and was restored")

// Changer is the signer, for who has pairs renewed.
type Changer interface {
	Signer
	Renew(context.Context, signer.Change) (pair.Facts, error)
	Keep(context.Context, signer.Change) (pair.Facts, error)
	Restore(context.Context, signer.Change) (pair.Facts, error)
	Restart(context.Context, signer.Change) (pair.Facts, error)
	Request(context.Context, signer.Change) ([]byte, error)
	Issue(context.Context, signer.Issue) ([]byte, error)
	Install(context.Context, signer.Install) (pair.Facts, error)
	Abandon(ctx context.Context, pair string) error
	Key(ctx context.Context, pair string, public crypto.PublicKey) crypto.Signer
}

// OnDemand renews pairs because a person asks for it, one after the other: replace, prove, then keep or restore. The
// first that is not proven ends it.
type OnDemand struct {
	Signer Changer
	// Leaf asks a server for the certificate that it serves, in DER.
	Leaf func(ctx context.Context, address string) ([]byte, error)
	// Get asks a server as a client with a certificate, and returns the HTTP status.
	Get    func(context.Context, pair.Target, tls.Certificate) (int, error)
	Clock  clock.Clock
	Policy pair.Policy
	// Timeout is how long those who use a pair may take to accept its successor, asked again after each Pause.
	Timeout, Pause time.Duration
	// Force renews what is not due.
	Force bool
	// Say is called when something is done.
	Say func(Outcome)
}

// Result is what became of a pair.
type Result string

// The results. Unproven was kept though nobody was seen to accept it, since what was before had ended.
const (
	Renewed  Result = "renewed"
	Unproven Result = "renewed, unproven"
	Restored Result = "restored"
	Planned  Result = "would be renewed"
	// Restarted says that those who read the pair only when they start have started again.
	Restarted Result = "in use after a restart"
)

// Outcome says what became of a pair. Why is one line, or empty.
type Outcome struct {
	Pair   string    `json:"pair"`
	Result Result    `json:"result"`
	Ended  time.Time `json:"ended,omitzero"` // the end of the one before
	Ends   time.Time `json:"ends,omitzero"`
	Why    string    `json:"why,omitempty"`
}

// Choose gives the pairs that are to be renewed, in their order: those of the names, or else all that are due. A name
// that is none, or one of a pair that this host cannot renew, is an error.
func (o OnDemand) Choose(all []pair.Facts, names []string) (chosen []pair.Facts, err error) {
	for _, f := range all {
		v := pair.Judge(f, nil, o.Policy, o.Clock.Now())
		named := slices.Contains(names, f.Name)
		switch {
		case named && !v.Renewable:
			return nil, fmt.Errorf("%s: %s", f.Name, v.NotRenewed+v.RenewedBy)
		case v.Renewable && (named || len(names) == 0 && (o.Force || v.State != pair.OK)):
			chosen = append(chosen, f)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(f pair.Facts) bool { return f.Name == name }) {
			return nil, fmt.Errorf("there is no pair %q; there are %s", name, list(all))
		}
	}
	return chosen, nil
}

func list(all []pair.Facts) string {
	var names []string
	for _, f := range all {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// Run renews pairs. It first ends the wait of a pair that was left unproven.
func (o OnDemand) Run(ctx context.Context, names []string) error {
	seen, err := o.Signer.Inspect(ctx)
	if err != nil {
		return err
	}
	if seen.Waiting != "" {
		f, ok := named(seen.Pairs, seen.Waiting)
		if !ok || seen.Blocked != "" {
			return fmt.Errorf("%s waits for proof since it was replaced, and can be neither kept nor restored: %s", seen.Waiting,
				seen.Blocked)
		}
		if err := o.finish(ctx, f, time.Time{}); err != nil {
			return err
		}
	}
	chosen, err := o.Choose(seen.Pairs, names)
	if err != nil {
		return err
	}
	for _, f := range chosen {
		if f.Name == seen.Waiting && len(names) == 0 {
			continue // it has just been renewed
		}
		if err := o.one(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// one renews a pair that does not wait.
func (o OnDemand) one(ctx context.Context, f pair.Facts) error {
	after, err := o.Signer.Renew(ctx, signer.Change{Pair: f.Name, Leaf: f.Leaf.SHA256, Force: o.Force})
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return o.finish(ctx, after, f.Leaf.NotAfter)
}

// Install puts in the place of a pair what a host issued that has its CA's key, and proves it as Run does.
func (o OnDemand) Install(ctx context.Context, f pair.Facts, certificate []byte) error {
	after, err := o.Signer.Install(ctx, signer.Install{Change: signer.Change{Pair: f.Name, Leaf: f.Leaf.SHA256},
		Certificate: certificate})
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return o.finish(ctx, after, f.Leaf.NotAfter)
}

// finish proves a pair that was replaced, and keeps or restores it. ended is the end of the one before, if it is known:
// nobody waits for the proof of what could not be restored.
func (o OnDemand) finish(ctx context.Context, f pair.Facts, ended time.Time) error {
	timeout := o.Timeout
	if !ended.IsZero() && ended.Before(o.Clock.Now()) {
		timeout = 0
	}
	p, err := o.prove(ctx, f, timeout)
	if err != nil {
		return fmt.Errorf("%s was replaced, and waits for proof: %w", f.Name, err)
	}
	q := signer.Change{Pair: f.Name, Leaf: f.Leaf.SHA256}
	done := Outcome{Pair: f.Name, Result: Renewed, Ended: ended, Ends: f.Leaf.NotAfter, Why: p.fact}
	if p.state == unproven {
		before, err := o.Signer.Restore(ctx, q)
		if err == nil {
			done.Result, done.Ends = Restored, before.Leaf.NotAfter
			o.Say(done)
			return fmt.Errorf("%s: %w: %s", f.Name, ErrUnproven, p.fact)
		}
		if e, ok := errors.AsType[*signer.Error](err); !ok || e.Reason != signer.Refused {
			return fmt.Errorf("%s was not proven (%s), and could not be restored: %w", f.Name, p.fact, err)
		}
		done.Result = Unproven
	}
	if _, err := o.Signer.Keep(ctx, q); err != nil {
		return fmt.Errorf("%s was replaced: %w", f.Name, err)
	}
	o.Say(done)
	return nil
}
