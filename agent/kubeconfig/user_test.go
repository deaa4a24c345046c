// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"strings"
	"testing"
)

const withUser = `current-context: a
contexts:
- {name: b, context: {user: other}}
- name: a
  context: {cluster: c, user: u}
clusters: [{name: c, cluster: {server: "https://a"}}]
users:
- {name: other, user: {token: x}}
- name: u
  user:
`

func TestTheCurrentUsersCredentialsAreRead(t *testing.T) {
	u, err := CurrentUser([]byte(withUser + "    client-certificate-data: QQ==\n    client-key-data: Qg==\n    client-key: /k\n"))
	if err != nil || string(u.Certificate) != "A" || string(u.Key) != "B" || u.KeyFile != "" || u.Server != "https://a" {
		t.Errorf("data: %+v, %v", u, err)
	}
	u, err = CurrentUser([]byte(withUser + "    client-certificate: c.pem\n    client-key: /k.pem\n"))
	if err != nil || u.CertificateFile != "c.pem" || u.KeyFile != "/k.pem" || u.Key != nil {
		t.Errorf("files: %+v, %v", u, err)
	}
}

func TestAUserWithoutACertificateOrInDoubtIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"token only":        withUser + "    token: secret\n",
		"half of data":      withUser + "    client-certificate-data: QQ==\n",
		"no base64":         withUser + "    client-certificate-data: secret!\n    client-key-data: Qg==\n",
		"key no base64":     withUser + "    client-certificate-data: QQ==\n    client-key-data: secret!\n",
		"two of the name":   withUser + "    token: x\n- {name: u, user: {}}\n",
		"empty user":        strings.TrimSuffix(withUser, "  user:\n"),
		"another name":      strings.Replace(withUser, "user: u}", "user: v}", 1) + "    token: x\n",
		"no context":        strings.Replace(withUser, "current-context: a", "current-context: z", 1) + "    token: x\n",
		"no users":          "current-context: a\ncontexts: [{name: a, context: {user: u}}]\n",
		"nothing":           "",
		"a list":            "[]",
		"an alias":          withUser + "    client-certificate-data: &a QQ==\n    client-key-data: *a\n",
		"not UTF-8":         "\xff",
		"more than allowed": strings.Repeat("#", maxBytes+1),
	} {
		if u, err := CurrentUser([]byte(text)); err == nil || strings.Contains(err.Error(), "secret") || u.Key != nil {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
}
