// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"strings"
	"testing"
)

func TestKeysLieBesideBundlesInTwoWays(t *testing.T) {
	for base, want := range map[string]string{
		"ca.crt": "ca.key ca-key.pem", "ca.pem": "ca.key ca-key.pem",
		"front-proxy-ca.crt": "front-proxy-ca.key front-proxy-ca-key.pem",
		"bundle":             "bundle.key bundle-key.pem", "a.b.crt": "a.b.key a.b-key.pem",
	} {
		if got := strings.Join(privateKeys(base), " "); got != want {
			t.Errorf("beside %s: %s, want %s", base, got, want)
		}
	}
}
