// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/x509"
	"math/big"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestACertificateIsRenewedBeforeItEndsWhateverOurClockSays(t *testing.T) {
	for sentence, slow := range map[string]time.Duration{
		"the clock is right": 0, "it is three minutes slow": 3 * time.Minute, "it is hours slow": 9 * time.Hour,
		"it is years slow":   9 * 365 * 24 * time.Hour,
		"it is minutes fast": -3 * time.Minute, "it is hours fast": -5 * time.Hour,
		"it is fast by more than the life": -50 * time.Hour,
	} {
		for _, life := range []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour} {
			for serial := range int64(50) {
				c := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: noon.Add(-5 * time.Minute),
					NotAfter: noon.Add(life)}
				received := noon.Add(-slow)
				after := renewal(c, received).Sub(received) // as the clock counts, which is as time passes
				if after >= life-life/20 || after < life/12 {
					t.Errorf("%s: a certificate of %v is renewed after %v", sentence, life, after)
				}
			}
		}
	}
}

func TestARequestIsLookedAtOftenForTwoMinutesAndThenSeldom(t *testing.T) {
	const least, most = 100 * time.Millisecond, time.Minute
	var waited time.Duration
	n := 1
	for ; waited < 100*time.Second; n++ {
		pause := pollDelay(least, most, n, float64(n%10)/10)
		if waited += pause; pause > soon || pause < least {
			t.Errorf("after %v the pause is %v", waited-pause, pause)
		}
	}
	for ; waited < time.Hour; n++ {
		pause := pollDelay(least, most, n, 0)
		if waited += pause; pause > most || pause < soon {
			t.Errorf("after %v the pause is %v", waited-pause, pause)
		}
	}
	if n > 110 {
		t.Errorf("%d looks in an hour", n)
	}
	for _, n := range []int{1, 39, 40, 41, 1000} {
		if pause := pollDelay(least, time.Second, n, 0); pause > time.Second {
			t.Errorf("the pause is %v, and may be a second at most", pause)
		}
	}
}
