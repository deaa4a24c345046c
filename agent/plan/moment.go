// SPDX-License-Identifier: Apache-2.0

package plan

import "time"

// Moment is the present, as far as decisions may depend on it.
type Moment struct {
	// Boot identifies this run of the kernel, and Uptime is how long it has lasted, sleep included
	// (CLOCK_BOOTTIME of clock_gettime(2)). Nobody can set it, so waits are counted in it.
	Boot   string
	Uptime time.Duration
	// Wall is the host's clock if it is believed, else zero: then nothing is taken for expired.
	Wall time.Time
}
