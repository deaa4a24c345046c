// SPDX-License-Identifier: Apache-2.0

package files

import (
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// Limits of a conflict over one file. Whoever changes a file once is answered at once; whoever keeps
// changing it may be as sure of himself as we are, and a file that flaps is worse than either content.
const (
	// conflictAfter repairs within conflictMemory are a conflict, and from then on there is one repair
	// in conflictPause.
	conflictAfter  = 3
	conflictMemory = 10 * time.Minute
	conflictPause  = time.Minute
	// graceForKnownWriter is for how long a known writer may be in the middle of something: the machine config
	// daemon removes a directory before it makes it again, and must find it empty then.
	graceForKnownWriter = 2 * time.Second
)

// conflict is how one file was changed by others and repaired by us. Times are the uptime of this
// boot. The zero value is a file that nobody touched.
type conflict struct {
	// open is set while a change by somebody else is seen and not repaired; found is since when.
	open  bool
	found time.Duration
	// repairs are those within conflictMemory, the oldest first.
	repairs []time.Duration
}

// changed is c with a change by somebody else that is there now.
func (c conflict) changed(now time.Duration) conflict {
	if !c.open {
		c.open, c.found = true, now
	}
	c.repairs = slices.DeleteFunc(slices.Clone(c.repairs), func(r time.Duration) bool { return now-r >= conflictMemory })
	return c
}

// repaired is c after the file was written by us.
func (c conflict) repaired(now time.Duration) conflict {
	c = c.changed(now)
	c.open, c.repairs = false, append(c.repairs, now)
	return c
}

// settled is c when the file is as it shall be, whoever saw to that.
func (c conflict) settled(now time.Duration) conflict {
	c = c.changed(now)
	c.open = false
	return c
}

// lasts reports whether somebody keeps changing the file.
func (c conflict) lasts() bool { return len(c.repairs) >= conflictAfter }

// repairAt is when the change may be repaired. spec is the file's field.
func (c conflict) repairAt(spec plan.FileSpec) time.Duration {
	at := c.found
	if len(spec.Beside) > 0 {
		at += graceForKnownWriter
	}
	if c.lasts() {
		at = max(at, c.repairs[len(c.repairs)-1]+conflictPause)
	}
	return at
}
