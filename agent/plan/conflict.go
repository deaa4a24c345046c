// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"
)

// Limits of a quarrel over one file. Whoever changes a file once is answered at once; whoever keeps
// changing it may be as sure of himself as we are, and a file that flaps is worse than either content.
const (
	// QuarrelAfter repairs within QuarrelMemory are a conflict, and from then on there is one repair
	// in QuarrelPause.
	QuarrelAfter  = 3
	QuarrelMemory = 10 * time.Minute
	QuarrelPause  = time.Minute
	// courtesy is for how long a known writer may be in the middle of something: the machine config
	// daemon removes a directory before it makes it again, and must find it empty then.
	courtesy = 2 * time.Second
)

// Quarrel is how one file was changed by others and repaired by us. Times are the uptime of this
// boot. The zero value is a file that nobody touched.
type Quarrel struct {
	// Open is set while a change by somebody else is seen and not repaired; Found is since when.
	Open  bool
	Found time.Duration
	// Repairs are those within QuarrelMemory, the oldest first.
	Repairs []time.Duration
}

// Changed is q with a change by somebody else that is there now.
func (q Quarrel) Changed(now time.Duration) Quarrel {
	if !q.Open {
		q.Open, q.Found = true, now
	}
	q.Repairs = slices.DeleteFunc(slices.Clone(q.Repairs), func(r time.Duration) bool { return now-r >= QuarrelMemory })
	return q
}

// Repaired is q after the file was written by us.
func (q Quarrel) Repaired(now time.Duration) Quarrel {
	q = q.Changed(now)
	q.Open, q.Repairs = false, append(q.Repairs, now)
	return q
}

// Settled is q when the file is as it shall be, whoever saw to that.
func (q Quarrel) Settled(now time.Duration) Quarrel {
	q = q.Changed(now)
	q.Open = false
	return q
}

// Conflict reports whether somebody keeps changing the file.
func (q Quarrel) Conflict() bool { return len(q.Repairs) >= QuarrelAfter }

// Answer is when the change may be repaired. r is the file's field.
func (q Quarrel) Answer(r FileSpec) time.Duration {
	at := q.Found
	if len(r.Beside) > 0 {
		at += courtesy
	}
	if q.Conflict() {
		at = max(at, q.Repairs[len(q.Repairs)-1]+QuarrelPause)
	}
	return at
}
