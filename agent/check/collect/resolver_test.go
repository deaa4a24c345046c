// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestAUnitIsReadWithItsDropInsInSystemdsOrder(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{
		"/usr/lib/systemd/system/a.service":                 "unit",
		"/lib/systemd/system/a.service":                     "weaker unit",
		"/usr/lib/systemd/system/a.service.d/50-x.conf":     "weaker x",
		"/etc/systemd/system/a.service.d/50-x.conf":         "x",
		"/etc/systemd/system/a.service.d/override.conf":     "edited",
		"/run/systemd/system/a.service.d/10-y.conf":         "y",
		"/etc/systemd/system/a.service.d/notes.txt":         "no drop-in",
		"/etc/systemd/system/another.service.d/50-x.conf":   "of another",
		"/usr/lib/systemd/system/without.service.d/10.conf": "without its unit",
	} {
		at := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"a.service": "unit\ny\nx\nedited", "without.service": "", "none.service": "",
	} {
		if got := unitText(root, name); got != want {
			t.Errorf("%s reads %q, want %q", name, got, want)
		}
	}
}

func TestNameServersAreThoseOfResolvConf(t *testing.T) {
	text := "# nameserver 1.1.1.1\nsearch x\nnameserver 169.254.169.254\nnameserver fe80::1%eth0\n" +
		"options rotate\nnameserver\nnameserver x\n"
	if got := fmt.Sprint(nameservers(text)); got != "[169.254.169.254 fe80::1]" {
		t.Errorf("read %s", got)
	}
}
