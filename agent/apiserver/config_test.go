// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/x509"
	"testing"
	"time"
)

func TestServersAreJudgedByNoTimeThatHasPassed(t *testing.T) {
	ca := func(at time.Time) *x509.Certificate { return &x509.Certificate{NotBefore: at} }
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	hour := func(n time.Duration) time.Time { return noon.Add(n * time.Hour) }
	for sentence, c := range map[string]struct {
		clock, own time.Time
		cas        []*x509.Certificate
		want       time.Time
	}{
		"a clock that is right":          {hour(0), hour(-3), []*x509.Certificate{ca(hour(-9))}, hour(0)},
		"a clock behind our certificate": {hour(-5), hour(-3), []*x509.Certificate{ca(hour(-9))}, hour(-3)},
		"a clock behind the CA":          {hour(-50), time.Time{}, []*x509.Certificate{ca(hour(-9))}, hour(-9)},
		"behind the CA, with one that is to be": {hour(-50), time.Time{}, []*x509.Certificate{ca(hour(90)), ca(hour(-9))},
			hour(-9)},
		"nothing but a clock": {hour(-50), time.Time{}, nil, hour(-50)},
	} {
		if got := later(later(c.clock, c.own), earliestNotBefore(c.cas)); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", sentence, got, c.want)
		}
	}
}
