// SPDX-License-Identifier: Apache-2.0

// Package wallclock makes times as a host reads them whose wall clock was set, for tests: the wall part of
// a time.Time says another time of day, and the monotonic part, by which durations are counted, goes on.
//
// It owns that one trick, which needs the layout of time.Time, and tests it. It is no clock: whoever has
// one gives its times to Set.
//
// Source: the comments on time.Time in the sources of package time.
package wallclock

import (
	"time"
	"unsafe"
)

// Set is t with its wall part moved by that much, in whole seconds. A time without a monotonic part, such
// as one that was read from a file, is another time then.
func Set(t time.Time, by time.Duration) time.Time {
	const monotonic, secondsAt = 1 << 63, 30 // the seconds are above the nanoseconds
	wall := (*uint64)(unsafe.Pointer(&t))
	if *wall&monotonic == 0 {
		return t.Add(by.Truncate(time.Second))
	}
	*wall += uint64(int64(by/time.Second)) << secondsAt
	return t
}

// Stamp is a time that reads as wall, and whose monotonic part is mono, which is not negative: as time.Now gives
// it on a host that has been up for so long. Times in a bubble of testing/synctest have no monotonic part.
func Stamp(wall time.Time, mono time.Duration) time.Time {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	const monotonic, to1885 = 1 << 63, 2682288000 // the seconds from 1885 to 1970
	t := layout{monotonic | uint64(wall.Unix()+to1885)<<30 | uint64(wall.Nanosecond()), int64(mono) + 1, time.UTC}
	return *(*time.Time)(unsafe.Pointer(&t))
}
