// SPDX-License-Identifier: Apache-2.0

package desired

import "time"

// ServerTime is what an API server whose certificate was verified said the time was (the Date of RFC
// 9110 section 6.6.1), and this host's clock when that was read. It proves nothing in another boot.
type ServerTime struct {
	Date time.Time
	// Seen should hold a monotonic reading, so that setting the clock later does not move it.
	Seen time.Time
}

// maxSkew is how far the host's clock may be from the API server's to be believed: what the
// kube-controller-manager allows for, which issues certificates that began five minutes ago.
const maxSkew = 5 * time.Minute

// trusted gives the wall time if it may be used to call something expired, else the zero time. That
// takes a time from an API server in this boot, and no proof to the contrary: notBefore is a time that
// has certainly passed, as the newest NotBefore seen or the day this program was built. A clock that
// is wrong by years is ordinary on a host without a battery.
func (e ServerTime) trusted(wall, notBefore time.Time) time.Time {
	if e.Date.IsZero() {
		return time.Time{}
	}
	expected := e.Date.Add(wall.Sub(e.Seen))
	// Without the monotonic reading: it is the clock that is judged.
	skew := wall.Round(0).Sub(expected)
	if skew.Abs() > maxSkew || wall.Round(0).Before(notBefore) {
		return time.Time{}
	}
	return wall.Round(0)
}
