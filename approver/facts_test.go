// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOfTwoRequestsExactlyOneIsLater(t *testing.T) {
	made := func(name string, second int) *certificates.CertificateSigningRequest {
		return &certificates.CertificateSigningRequest{ObjectMeta: meta.ObjectMeta{Name: name, CreationTimestamp: meta.NewTime(time.Unix(int64(second), 0))}}
	}
	for _, pair := range [][2]*certificates.CertificateSigningRequest{
		{made("a", 2), made("b", 1)},
		{made("b", 1), made("a", 1)},
	} {
		if !later(pair[0], pair[1]) || later(pair[1], pair[0]) {
			t.Errorf("%s at %v is not later than %s at %v", pair[0].Name, pair[0].CreationTimestamp, pair[1].Name, pair[1].CreationTimestamp)
		}
	}
}
