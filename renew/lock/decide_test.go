// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
)

const (
	claimOfA = `{"host":"a","phase":"claim","since":"2026-11-23T10:00:00Z"}`
	workOfA  = `{"host":"a","phase":"work","pair":"etcd/server","since":"2026-11-23T10:00:00Z"}`
)

// found is the lock with that text.
func found(text string, revision int64) *etcd.KeyValue {
	return &etcd.KeyValue{Key: Key, Value: []byte(text), ModRevision: revision}
}

func TestWhoseTheLockIs(t *testing.T) {
	for name, c := range map[string]struct {
		kv         *etcd.KeyValue
		ours       bool
		unreadable bool
		says       string
	}{
		"nobody's":          {},
		"own work":          {kv: found(workOfA, 5), ours: true, says: "held by a, which works on etcd/server since 2026-11-23T10:00:00Z"},
		"own claim":         {kv: found(claimOfA, 5), says: "held by a, which claims it since 2026-11-23T10:00:00Z"},
		"another's":         {kv: found(strings.Replace(workOfA, `"a"`, `"b"`, 1), 5), says: "held by b, which works"},
		"another spelling":  {kv: found(strings.Replace(workOfA, `"a"`, `"A"`, 1), 5), says: "held by A, which works"},
		"with a reason":     {kv: found(strings.Replace(workOfA, `{`, `{"reason":"not proven",`, 1), 5), ours: true, says: "Z: not proven"},
		"with a new field":  {kv: found(strings.Replace(workOfA, `{`, `{"new":1,`, 1), 5), ours: true, says: "held by a"},
		"for a terminal":    {kv: found(`{"host":"\u001b[2J","phase":"work"}`, 5), says: `held by \x1b[2J`},
		"empty":             {kv: found("", 5), unreadable: true, says: "cannot be read"},
		"without a host":    {kv: found(`{"phase":"work"}`, 5), unreadable: true, says: "cannot be read"},
		"without a phase":   {kv: found(`{"host":"a"}`, 5), unreadable: true, says: "cannot be read"},
		"of another phase":  {kv: found(strings.Replace(workOfA, "work", "rest", 1), 5), unreadable: true, says: "cannot be read"},
		"of another type":   {kv: found(`["a"]`, 5), unreadable: true, says: "cannot be read"},
		"cut off":           {kv: found(workOfA[:40], 5), unreadable: true, says: "cannot be read"},
		"very long":         {kv: found(workOfA+strings.Repeat(" ", longestNote), 5), unreadable: true, says: "cannot be read"},
		"with a wrong date": {kv: found(`{"host":"a","phase":"work","since":"now"}`, 5), unreadable: true, says: "cannot be read"},
	} {
		h := read(c.kv)
		if (h == nil) != (c.kv == nil) || h.ours("a") != c.ours {
			t.Errorf("%s: %+v is a's: %t", name, h, h.ours("a"))
			continue
		}
		if h != nil && (h.Unreadable != c.unreadable || h.Revision != 5 ||
			!strings.Contains((&HeldError{*h}).Error(), c.says)) {
			t.Errorf("%s: %+v says %q", name, h, &HeldError{*h})
		}
	}
}

func TestAHostWithAnOddNameKnowsItsOwnWork(t *testing.T) {
	if h := read(found(`{"host":"k\u00e4se","phase":"work"}`, 5)); !h.ours("käse") || h.ours("kase") {
		t.Errorf("%+v", h)
	}
}

func TestWhatBecameOfAChange(t *testing.T) {
	own, other := read(found(workOfA, 7)), read(found(strings.Replace(workOfA, `"a"`, `"b"`, 1), 7))
	for name, c := range map[string]struct {
		r       etcd.Result
		current *Holder
		from    int64
		want    outcome
	}{
		"made":                         {r: etcd.Result{Done: true}, from: 5, want: done},
		"own work came in between":     {current: own, from: 5, want: again},
		"a claim meets own work":       {current: own, want: gone},
		"own claim came in between":    {current: read(found(claimOfA, 7)), from: 5, want: gone},
		"somebody else came":           {current: other, from: 5, want: gone},
		"nobody has it":                {from: 5, want: gone},
		"nobody knows who has it":      {current: read(found("", 7)), from: 5, want: gone},
		"somebody else came first":     {current: other, want: gone},
		"made, whatever was read then": {r: etcd.Result{Done: true}, current: other, from: 5, want: done},
	} {
		if got := judge(c.r, c.current, c.from, "a"); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestAChangeWithoutAnAnswerIsRecognised(t *testing.T) {
	change := etcd.Change{Key: Key, From: 5, Value: []byte(workOfA)}
	leased := found(workOfA, 7)
	leased.Lease = 1
	for name, c := range map[string]struct {
		kv   *etcd.KeyValue
		want bool
	}{
		"there":                {found(workOfA, 7), true},
		"what was there":       {found(workOfA, 5), false},
		"nothing":              {nil, false},
		"another":              {found(claimOfA, 7), false},
		"under another lease":  {leased, false},
		"of before a new etcd": {found(workOfA, 3), false},
	} {
		if written(c.kv, change) != c.want {
			t.Errorf("%s: want %t", name, c.want)
		}
	}
}

func FuzzNote(f *testing.F) {
	f.Add([]byte(workOfA), "a")
	f.Add([]byte(claimOfA), "a")
	f.Fuzz(func(t *testing.T, value []byte, host string) {
		h := read(&etcd.KeyValue{Key: Key, Value: value, ModRevision: 5})
		if h.Unreadable && h.ours(host) || h.Revision != 5 || len(h.Host)+len(h.Pair)+len(h.Reason)+len(h.Journal) > 1024 {
			t.Errorf("%+v", h)
		}
	})
}
