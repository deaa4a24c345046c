// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/gate"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/lock"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

// Unattended renews what is due while nobody watches, when all of etcd is well, and on one host at a time.
type Unattended struct {
	OnDemand
	// Connect asks etcd, with the key of the client's pair.
	Connect func(context.Context, inspect.Etcd, crypto.Signer) (Cluster, error)
	// Host is the name of this one in the lock.
	Host string
	// DegradedBelow is how little a pair has to live for a majority of etcd to be enough.
	DegradedBelow time.Duration
	// Users has who reads a pair only at the start ended.
	Users bool

	looked bool // for a lock that a process before this one held
	held   *lock.Holder
}

// turn is the lock, and the etcd that it is in.
type turn struct {
	*Unattended
	lock    lock.Lock
	cluster Cluster
	// working is set once the lock is held for work, and claimed before that.
	working, claimed bool
	// certificate is what another host answered with.
	certificate []byte
}

// Turn renews what is due, if it may. blocked says why it may not; an error is what could not be done. Both are for
// later: the next Turn goes on where this one ended.
func (u *Unattended) Turn(ctx context.Context) (blocked string, err error) {
	u.held = nil
	seen, err := u.Signer.Inspect(ctx)
	if err != nil {
		return "", err
	}
	_, _, due, err := u.next(seen)
	wanted, asks := u.wanted(seen)
	switch {
	case err != nil:
		return err.Error(), nil
	case seen.Etcd == nil && (due || asks):
		return errNoEtcd.Error(), nil
	case seen.Etcd == nil || !due && !asks && !u.answers(seen) && u.looked:
		return "", nil
	}
	t := &turn{Unattended: u}
	defer t.close()
	if err := t.connect(ctx, seen.Etcd); err != nil {
		return err.Error(), nil
	}
	var unanswered error
	if u.answers(seen) {
		unanswered = t.requests().answerAll(ctx)
	}
	waits := ""
	if asks {
		if t.certificate, waits, err = t.requests().ask(ctx, wanted); err != nil {
			waits = err.Error() // what does not need another host is renewed all the same
		}
	}
	blocked, err = t.take(ctx, due || t.certificate != nil)
	u.held, _ = lock.Look(ctx, t.cluster)
	if blocked != "" || err != nil {
		return blocked, err
	}
	return waits, unanswered
}

// Held is who held the lock when the last Turn ended; nil if nobody did, or there was no need to look.
func (u *Unattended) Held() *lock.Holder { return u.held }

func (t *turn) requests() requests { return requests{Signer: t.Signer, Host: t.Host, Store: t.cluster} }

// next is the pair that waits for proof, or else the first that is due. What has ended or will soon comes before the
// others: where something delays renewals, the last in their order would never be reached.
func (u *Unattended) next(seen inspect.Inspection) (f pair.Facts, waits, ok bool, err error) {
	if seen.Waiting != "" {
		f, ok = named(seen.Pairs, seen.Waiting)
		if !ok || seen.Blocked != "" {
			return f, true, true, fmt.Errorf("%s waits for proof, and can be neither kept nor restored: %s", seen.Waiting,
				seen.Blocked)
		}
		return f, true, true, nil
	}
	chosen, err := u.Choose(seen.Pairs, nil)
	if err != nil || len(chosen) == 0 {
		return f, false, false, err
	}
	first := slices.MinFunc(chosen, func(a, b pair.Facts) int { return cmp.Compare(u.urgency(a), u.urgency(b)) })
	return first, false, true, nil
}

// urgency is the rank of a pair by its state, the most urgent being first.
func (u *Unattended) urgency(f pair.Facts) int {
	return slices.Index([]pair.State{pair.Expired, pair.Expiring, pair.Due},
		pair.Judge(f, nil, u.Policy, u.Clock.Now()).State)
}

// take takes the lock and works, or goes on with work of before.
func (t *turn) take(ctx context.Context, due bool) (blocked string, err error) {
	note, err := t.lock.Resume(ctx)
	if err != nil {
		return "", err
	}
	t.looked = true
	switch {
	case note != nil && note.Reason != "":
		return fmt.Sprintf("this host holds the lock since %s: %s", note.Since.Format(time.RFC3339), note.Reason), nil
	case note != nil:
		t.working = true
	case !due:
		return "", nil
	default:
		if err := t.lock.Claim(ctx); err != nil {
			if _, held := errors.AsType[*lock.HeldError](err); held {
				return err.Error(), nil
			}
			return "", err
		}
		t.claimed = true
	}
	return t.work(ctx)
}

// work renews one pair after the other, and looks at etcd before each and after the last.
func (t *turn) work(ctx context.Context) (blocked string, err error) {
	for {
		seen, err := t.Signer.Inspect(ctx)
		if err != nil {
			return "", err
		}
		f, waits, due, err := t.next(seen)
		if err != nil {
			return err.Error(), nil
		}
		var certificate []byte
		if !due && t.certificate != nil {
			f, due = t.wanted(seen)
			certificate = t.certificate
		}
		// A pair that was just replaced may be the one that etcd is asked with.
		if err := t.connect(ctx, seen.Etcd); err != nil {
			return err.Error(), nil
		}
		// For the lock to be freed a majority is enough: the next host looks for itself.
		left := time.Duration(0)
		if due {
			left = f.Leaf.NotAfter.Sub(t.Clock.Now())
		}
		// What waits has to be settled, however etcd is: it may be what ails it.
		if shut := gate.Judge(t.cluster.Look(ctx), left, t.DegradedBelow); shut != "" && !waits {
			return shut, nil
		}
		switch {
		case !due && !t.working:
			return "", nil // somebody else has renewed it meanwhile
		case !due:
			return "", t.end(ctx)
		}
		if blocked, err := t.renew(ctx, f, waits, certificate); blocked != "" || err != nil {
			return blocked, err
		}
	}
}

// renew renews one pair, by a certificate of another host if there is one. A pair that is not proven keeps the lock,
// so that no other host makes the same mistake.
func (t *turn) renew(ctx context.Context, f pair.Facts, waits bool, certificate []byte) (blocked string, err error) {
	if err := t.lock.Begin(ctx, f.Name, "", ""); err != nil {
		return "", err
	}
	t.working, t.claimed = true, false
	switch {
	case waits:
		err = t.finish(ctx, f, time.Time{})
	case certificate != nil:
		err = t.install(ctx, f, certificate)
	default:
		err = t.one(ctx, f)
	}
	if errors.Is(err, ErrUnproven) {
		return err.Error(), t.lock.Begin(ctx, f.Name, "", err.Error())
	}
	return "", err
}

// install renews a pair by what another host answered. If that is no good nothing has changed, and the lock is freed.
func (t *turn) install(ctx context.Context, f pair.Facts, certificate []byte) error {
	after, err := t.Signer.Install(ctx, signer.Install{Change: signer.Change{Pair: f.Name, Leaf: f.Leaf.SHA256},
		Certificate: certificate})
	if e, ok := errors.AsType[*signer.Error](err); ok && e.Reason == signer.Refused {
		t.requests().reject(ctx)
		return errors.Join(fmt.Errorf("what another host answered is no good: %w", err), t.end(ctx))
	}
	if err == nil {
		err = t.finish(ctx, after, f.Leaf.NotAfter)
	}
	if err == nil {
		t.requests().forget(ctx)
	}
	return err
}

// end frees the lock, after those are back that read their pair only when they start.
func (t *turn) end(ctx context.Context) error {
	if t.Users {
		if err := t.Restart(ctx); err != nil {
			return err
		}
	}
	return t.lock.Done(ctx)
}

func (t *turn) connect(ctx context.Context, access *inspect.Etcd) error {
	if access == nil {
		return errNoEtcd
	}
	key, err := keyOf(ctx, t.Signer, *access)
	if err != nil {
		return err
	}
	c, err := t.Connect(ctx, *access, key)
	if err != nil {
		return err
	}
	if t.cluster != nil {
		t.cluster.Close()
	}
	t.cluster, t.lock.Store, t.lock.Host, t.lock.Now = c, c, t.Host, t.Clock.Now
	return nil
}

// close gives back a claim that came to nothing, and leaves work as it is.
func (t *turn) close() {
	if t.cluster == nil {
		return
	}
	if t.claimed {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		_ = t.lock.Drop(ctx) // or it ends by itself
		cancel()
	}
	t.cluster.Close()
}

// keyOf is the key of the client's pair, which the signer has.
func keyOf(ctx context.Context, s Changer, access inspect.Etcd) (crypto.Signer, error) {
	if len(access.Chain) == 0 {
		return nil, fmt.Errorf("%s: there is no certificate to show", access.Pair)
	}
	public, err := pair.PublicKey(access.Chain[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", access.Pair, err)
	}
	return s.Key(ctx, access.Pair, public), nil
}
