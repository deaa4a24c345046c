// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd/wire"
)

// Status is how a member sees itself. It answers without the others, so that it is no proof of a majority.
type Status struct {
	// Cluster and Member are ids.
	Cluster, Member uint64
	// Version is that of the program, such as 3.6.8.
	Version string
	// DBSize is in bytes, what is free within it included.
	DBSize int64
	// Leader is the id of the member that leads, or 0 if this one knows of none.
	Leader                 uint64
	RaftTerm, AppliedIndex uint64
	// Errors are what the member complains about: alarms, and that there is no leader.
	Errors  []string
	Learner bool
}

// Status asks the member how it fares. Of an etcd with authentication this takes the role root (3.6); all other calls
// take a role for their keys, or none.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.call(ctx, "Maintenance/Status", nil, status(&s))
	return s, err
}

func status(s *Status) wire.Fields {
	return wire.Fields{
		1: wire.Message(func(b []byte) error {
			return wire.Decode(b, wire.Fields{1: wire.Number(&s.Cluster), 2: wire.Number(&s.Member)})
		}),
		2: wire.Text(&s.Version), 3: wire.Number(&s.DBSize), 4: wire.Number(&s.Leader), 6: wire.Number(&s.RaftTerm),
		7: wire.Number(&s.AppliedIndex), 8: wire.Texts(&s.Errors), 10: wire.Bool(&s.Learner),
	}
}

// AlarmKind is what an alarm is about, as etcd numbers it.
type AlarmKind int32

// The kinds that there are.
const (
	NoSpace AlarmKind = 1 // writes are refused
	Corrupt AlarmKind = 2 // members hold different data
)

// Alarm is a state of a member that stays until a person clears it.
type Alarm struct {
	Member uint64
	Kind   AlarmKind
}

// Alarms are those of all members, as a majority knows them.
func (c *Client) Alarms(ctx context.Context) (all []Alarm, err error) {
	err = c.call(ctx, "Maintenance/Alarm", nil, alarms(&all))
	return all, err
}

func alarms(to *[]Alarm) wire.Fields {
	return wire.Fields{2: wire.Repeated(to, func(b []byte) (a Alarm, err error) {
		err = wire.Decode(b, wire.Fields{1: wire.Number(&a.Member), 2: wire.Number(&a.Kind)})
		return a, err
	})}
}
