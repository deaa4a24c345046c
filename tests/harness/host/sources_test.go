// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strings"
	"testing"
)

func TestOnlyTheDistributionsOwnSourcesServeTheRoot(t *testing.T) {
	index := strings.Join([]string{
		"Debian\tbookworm\thttp://packages.example/debian/\tstable\tmain",
		"Debian\tbookworm\thttp://packages.example/debian/\tstable\tmain", // once per architecture
		"Debian\tbookworm-security\thttp://packages.example/debian-security/\tbookworm-security\tmain",
		"Debian\tbookworm-backports\thttp://packages.example/debian/\tbookworm-backports\tmain",
		"Debian\ttrixie\thttp://packages.example/debian/\ttrixie\tmain",
		"Docker\tbookworm\thttps://docker.example/\tbookworm\tstable",
		"Error: something else",
	}, "\n") + "\n"
	got, err := release{"Debian", "bookworm"}.sources(index, "bookworm")
	want := []string{
		"deb http://packages.example/debian/ stable main",
		"deb http://packages.example/debian-security/ bookworm-security main",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got, err := (release{"Ubuntu", "noble"}).sources(index, "noble"); err == nil ||
		!strings.Contains(err.Error(), "apt-get update") {
		t.Errorf("no source of the release: got %q, %v", got, err)
	}
	newer, err := release{"Debian", "bookworm"}.sources(index, "trixie")
	want = []string{
		"deb http://packages.example/debian/ trixie main",
		"deb http://packages.example/debian-security/ trixie-security main",
	}
	if err != nil || !slices.Equal(newer, want) {
		t.Errorf("for a newer release: got %q, %v, want %q", newer, err, want)
	}
}

func TestTheReleaseIsThatOfTheMachine(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       release
	}{
		{"Debian", "NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\nID=debian\n", release{"Debian", "bookworm"}},
		{"quoted values", "ID=\"ubuntu\"\nVERSION_CODENAME='noble'\n", release{"Ubuntu", "noble"}},
		{"a machine without apt", "ID=fedora\nVERSION_ID=43\n", release{}},
		{"no code name", "ID=debian\n", release{}},
		{"empty", "", release{}},
	} {
		got, err := thisRelease([]byte(c.file))
		if got != c.want || (err != nil) != (c.want == release{}) {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

func TestProxyAndSnapshotSettingsReachTheRootsApt(t *testing.T) {
	got := acquireOptions(`Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3128/";
Acquire::https::Verify-Peer "";
Acquire::Check-Valid-Until "false";
Acquire::Changelogs::URI::Origin::Debian "https://changelogs.example/";
`)
	want := []string{`Acquire::http::Proxy "http://proxy.example:3128/";`, `Acquire::Check-Valid-Until "false";`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
