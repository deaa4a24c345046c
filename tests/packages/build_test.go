// SPDX-License-Identifier: Apache-2.0

//go:build real

package packages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The two versions that the tests install. The first is that of the changelogs and of the spec.
const (
	oldVersion = "0.1.0"
	newVersion = "0.2.0"
)

const mebibyte = 1 << 20

// machine matches the names that Debian and RPM have for this machine's architecture.
var machine = runtime.GOARCH + "|" + rpmArch(runtime.GOARCH)

// workshop holds the copies and what was built in them, for all tests.
var workshop string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "packages")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	workshop = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// tool runs a program of this machine, in dir, and returns what it printed.
func tool(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := tool("", name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// copySources copies the working tree without what git ignores, and without .git.
func copySources(to string) error {
	root, err := tool("", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	root = strings.TrimSpace(root)
	list, err := tool(root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) { // removed and not yet committed
			continue
		}
		if err != nil {
			return err
		}
		file := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pack makes packages in a copy of the sources called name, and returns the folder they are in. The copies
// are apart in everything that a build must not depend on.
func pack(name, umask, zone string, arguments ...string) (string, error) {
	dir := filepath.Join(workshop, name)
	if err := copySources(dir); err != nil {
		return "", err
	}
	args := append([]string{"-c", `umask "$1"; shift; exec make SOURCE_DATE_EPOCH=1790000000 "$@"`, "sh", umask},
		arguments...)
	cmd := exec.Command("sh", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TZ="+zone, "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return filepath.Join(dir, "dist"), nil
}

var (
	first = sync.OnceValues(func() (string, error) {
		return pack("one", "022", "UTC", "deb", "rpm", "tar", "VERSION=v"+oldVersion)
	})
	again = sync.OnceValues(func() (string, error) {
		return pack("another/place", "077", "Pacific/Kiritimati", "deb", "rpm", "tar", "VERSION=v"+oldVersion)
	})
	upgrade = sync.OnceValues(func() (string, error) {
		return pack("newer", "022", "UTC", "deb", "rpm", "VERSION=v"+newVersion, "ARCHES="+runtime.GOARCH)
	})
)

// built is a folder of packages.
func built(t *testing.T, how func() (string, error)) string {
	t.Helper()
	dir, err := how()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func debOf(t *testing.T, how func() (string, error), version string) string {
	t.Helper()
	return filepath.Join(built(t, how), fmt.Sprintf("node-cert-agent_%s-1_%s.deb", version, runtime.GOARCH))
}

// rpmArch is what RPM calls an architecture of Go's.
func rpmArch(arch string) string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
}

func rpmOf(t *testing.T, how func() (string, error), name, version string) string {
	t.Helper()
	return filepath.Join(built(t, how), fmt.Sprintf("%s-%s-1.%s.rpm", name, version, rpmArch(runtime.GOARCH)))
}

// digests are those of all files in a folder.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		sum := sha256.Sum256(b)
		out[d.Name()] = hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheSameSourcesMakeTheSamePackagesBitForBit(t *testing.T) {
	one, two := digests(t, built(t, first)), digests(t, built(t, again))
	if len(one) != 10 {
		t.Errorf("%d packages, want DEB and RPM of two programs and a tar, for two architectures: %v", len(one), one)
	}
	for name, digest := range one {
		if two[name] != digest {
			t.Errorf("%s differs between two builds", name)
		}
	}
}

func TestThePackageIsSmall(t *testing.T) {
	dir := built(t, first)
	for _, pattern := range []string{"node-cert-agent_*.deb", "node-cert-agent-*.rpm", "node-cert-agent_*.tar.gz"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) != 2 {
			t.Fatalf("%s: %q, %v", pattern, files, err)
		}
		for _, f := range files {
			i, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s has %.1f MiB", i.Name(), float64(i.Size())/mebibyte)
			if i.Size() > 7*mebibyte {
				t.Errorf("%s has %d bytes, want at most 7 MiB", i.Name(), i.Size())
			}
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		rpm := filepath.Join(dir, fmt.Sprintf("node-cert-agent-%s-1.%s.rpm", oldVersion, rpmArch(arch)))
		var installed int
		if _, err := fmt.Sscan(run(t, "rpm", "-qp", "--qf", "%{SIZE}", rpm), &installed); err != nil {
			t.Fatal(err)
		}
		t.Logf("installed for %s: %.1f MiB", arch, float64(installed)/mebibyte)
		if installed > 16*mebibyte {
			t.Errorf("installed it takes %d bytes, want at most 16 MiB", installed)
		}
	}
}

func TestLintianAndRpmlintHaveNothingToSayThatIsNotExplained(t *testing.T) {
	dir := built(t, first)
	debs, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	rpms, _ := filepath.Glob(filepath.Join(dir, "*.rpm"))
	for _, deb := range debs {
		if out := run(t, "lintian", "--allow-root", "--fail-on", "error,warning", deb); out != "" {
			t.Errorf("lintian on %s:\n%s", filepath.Base(deb), out)
		}
	}
	// rpmlint fails for errors only; its last line counts both.
	out := run(t, "rpmlint", append([]string{"-r", filepath.Join(dir, "../rpm/node-cert-agent.rpmlintrc")}, rpms...)...)
	if !strings.Contains(out, " 0 errors, 0 warnings,") {
		t.Errorf("rpmlint:\n%s", out)
	}
}

// files are the files of a package with their modes, as its format's own tool tells them.
func files(t *testing.T, pkg string) (out []string) {
	t.Helper()
	if strings.HasSuffix(pkg, ".rpm") {
		for l := range strings.Lines(run(t, "rpm", "-qp", "--qf",
			"[%{FILEMODES:perms} %{FILEUSERNAME} %{FILEGROUPNAME} %{FILENAMES}\n]", pkg)) {
			out = append(out, strings.TrimSpace(l))
		}
	} else {
		list := run(t, "sh", "-c", `case $1 in *.deb) dpkg-deb --fsys-tarfile "$1" ;; *) zcat "$1" ;; esac | tar -tv`, "sh",
			pkg)
		for l := range strings.Lines(list) {
			f := strings.Fields(l)
			owner := strings.Split(f[1], "/")
			out = append(out, fmt.Sprintf("%s %s %s /%s", f[0], owner[0], owner[1],
				strings.TrimPrefix(strings.TrimPrefix(f[5], "./"), "/")))
		}
	}
	out = slices.DeleteFunc(out, func(l string) bool { return strings.HasPrefix(l, "d") })
	slices.Sort(out)
	return out
}

func TestEveryFormatHasTheSameFilesButForItsOwn(t *testing.T) {
	dir := built(t, first)
	rpm := files(t, rpmOf(t, first, "node-cert-agent", oldVersion))
	if len(rpm) < 15 {
		t.Fatalf("the RPM holds %q", rpm)
	}
	for _, l := range rpm {
		if mode := strings.Fields(l)[0]; !strings.Contains(l, " root root /usr/") || mode != "-rw-r--r--" &&
			(mode != "-rwxr-xr-x" || !strings.HasSuffix(l, "/usr/bin/node-cert-agent")) {
			t.Errorf("in the RPM: %s", l)
		}
	}
	if tar := files(t, filepath.Join(dir, fmt.Sprintf("node-cert-agent_%s_%s.tar.gz", oldVersion,
		runtime.GOARCH))); !slices.Equal(tar, rpm) {
		t.Errorf("the tar holds\n%s\nthe RPM\n%s", strings.Join(tar, "\n"), strings.Join(rpm, "\n"))
	}
	own := func(l string) bool {
		return strings.Contains(l, "/usr/share/zsh/") || strings.Contains(l, "/usr/share/licenses/") ||
			strings.Contains(l, "/usr/share/lintian/") ||
			strings.HasSuffix(l, "/copyright") || strings.Contains(l, "changelog.Debian") || strings.Contains(l, "debian")
	}
	deb := slices.DeleteFunc(files(t, debOf(t, first, oldVersion)), own)
	if rpm := slices.DeleteFunc(slices.Clone(rpm), own); !slices.Equal(deb, rpm) {
		t.Errorf("the DEB holds\n%s\nthe RPM\n%s", strings.Join(deb, "\n"), strings.Join(rpm, "\n"))
	}
}

func TestMakeInstallLaysOutWhatTheTarHolds(t *testing.T) {
	to := filepath.Join(t.TempDir(), "image")
	dir := filepath.Dir(built(t, first))
	if _, err := tool(dir, "make", "-s", "install", "SOURCE_DATE_EPOCH=1790000000", "VERSION=v"+oldVersion,
		"DESTDIR="+to); err != nil {
		t.Fatal(err)
	}
	want := t.TempDir()
	run(t, "tar", "-C", want, "-xpzf", filepath.Join(dir, "dist", fmt.Sprintf("node-cert-agent_%s_%s.tar.gz", oldVersion,
		runtime.GOARCH)))
	if out, err := tool("", "diff", "-r", want, to); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if got := run(t, filepath.Join(to, "usr/bin/node-cert-agent"), "version"); !strings.HasPrefix(got,
		"node-cert-agent v"+oldVersion+" ") {
		t.Errorf("it says %q", got)
	}
}

func TestTheFIPSBuildHasTheCertifiedModuleInForce(t *testing.T) {
	dir := filepath.Join(workshop, "fips")
	if err := copySources(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := tool(dir, "make", "-s", "build", "FIPS=1", "VERSION=v"+oldVersion); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "bin/node-cert-agent")
	note := run(t, "go", "version", "-m", program)
	for _, want := range []string{"GOFIPS140=v1.", "DefaultGODEBUG=fips140=on"} {
		if !strings.Contains(note, want) {
			t.Errorf("the program was not built with %s:\n%s", want, note)
		}
	}
	run(t, program, "version") // with the module's self-tests
}
