// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
)

// ReleaseKey is where the last Release is in etcd.
const ReleaseKey = "/node-cert-agent.io/renewal/released"

// Release is a person's word that a holder of the lock is off or repaired, so that another host may go on.
type Release struct {
	// By is the person, and Reason what that person says.
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// Revision and Held are what was released; a note that could not be read is empty.
	Revision int64 `json:"revision"`
	Held     Note  `json:"held"`
}

// ErrChanged says that the lock is not what the person saw.
var ErrChanged = errors.New("the lock has changed meanwhile")

// Apply frees the lock if it still is what h says, and records r with it. Held and Revision are filled in. Nobody
// checks what the host does: if it changes a pair at this moment, two hosts may.
func (r Release) Apply(ctx context.Context, s Keys, h Holder) error {
	if r.By == "" || r.Reason == "" {
		return errors.New("releasing the lock: it takes a name and a reason")
	}
	r.Revision, r.Held = h.Revision, h.Note
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding a release of the lock: %v", err)
	}
	result, err := s.Commit(ctx, etcd.Change{Key: Key, From: h.Revision, Delete: true,
		Record: &etcd.KeyValue{Key: ReleaseKey, Value: value}})
	switch {
	case err != nil:
		return fmt.Errorf("releasing the lock: %w", err)
	case !result.Done:
		return ErrChanged
	}
	return nil
}

// LastRelease is the last one that was recorded, or nil.
func LastRelease(ctx context.Context, s Keys) (*Release, error) {
	kv, err := s.Get(ctx, ReleaseKey)
	if err != nil || kv == nil {
		return nil, err
	}
	r := &Release{}
	if len(kv.Value) > longestNote || json.Unmarshal(kv.Value, r) != nil {
		return nil, errors.New("the record of the last release of the lock cannot be read")
	}
	show(&r.By, &r.Reason, &r.Held.Host, &r.Held.Pair, &r.Held.Reason, &r.Held.Journal)
	return r, nil
}
