// SPDX-License-Identifier: Apache-2.0

//go:build real

package crash

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A tree maps relative paths to "mode content"; of directories only the mode is told.
type tree map[string]string

// What belongs to others and must be the same after whatever happens: I3.
var foreign = tree{
	"etc/other.crt":            "-rw------- others\n",
	"etc/.ca.crt.swp":          "-rw-r--r-- an editor's\n",
	"etc/.ca.crt12x":           "-rw-r--r-- no name of ours\n",
	"etc/folder":               "drwx------",
	"etc/link":                 "Lrwxrwxrwx other.crt",
	"certs.d/theirs":           "drwx------",
	"certs.d/theirs/ca.crt":    "-rw-r--r-- theirs\n",
	"certs.d/theirs/.ca.crt.1": "-rw-r--r-- theirs\n",
}

var before = tree{
	".": "drwxr-xr-x", "etc": "drwxr-xr-x", "certs.d": "drwxr-xr-x",
	"etc/ca.crt":          "-rw-r--r-- old\nold\nold\n",
	"etc/kubeconfig":      "-rw-r----- " + kubeconfig("old\n"),
	"certs.d/gone":        "drwxr-xr-x",
	"certs.d/gone/ca.crt": "-rw-r--r-- ours\n",
}

// kubeconfig is somebody else's, but for its CA.
func kubeconfig(ca string) string {
	return "# theirs\nclusters: [{cluster: {certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte(ca)) +
		"}}]\nusers: [{user: {token: t}}]\n"
}

// end is the tree after the commit, whose files have size times a few lines.
func end(size int) tree {
	lines := func(line string, n int) string { return strings.Repeat(line, n*size) }
	return tree{
		".": "drwxr-xr-x", "etc": "drwxr-xr-x", "certs.d": "drwxr-xr-x",
		"etc/ca.crt":              "-rw-r--r-- " + lines("new\n", 2),
		"etc/kubeconfig":          "-rw-r----- " + kubeconfig(lines("new\n", 3)),
		"certs.d/new:5000":        "drwxr-xr-x",
		"certs.d/new:5000/ca.crt": "-rw-r--r-- " + lines("made\n", 4),
	}
}

var after = end(1)

// leftover is a temporary file; the next sweep takes it.
var leftover = regexp.MustCompile(`^(etc/\.kubeconfig|(etc|certs\.d/new:5000)/\.ca\.crt)[0-9]{1,19}$`)

// build builds the program that does nothing but a commit.
func build(t *testing.T) (binary string) { return buildProgram(t, "./testdata/commit") }

func buildAgent(t *testing.T) (binary string) { return buildProgram(t, "../../cmd/node-cert-agent") }

func buildProgram(t *testing.T, dir string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), filepath.Base(dir))
	cmd := exec.Command("go", "build", "-o", binary, dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// reset makes the tree before the commit in dir.
func reset(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(before)
	maps.Copy(all, foreign)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := filepath.Join(dir, name)
		mode, content, _ := strings.Cut(all[name], " ")
		var perm fs.FileMode
		for i, c := range mode[1:] {
			if c != '-' {
				perm |= 1 << (8 - i)
			}
		}
		var err error
		switch mode[0] {
		case 'd':
			err = errors.Join(os.Mkdir(p, perm), os.Chmod(p, perm))
		case 'L':
			err = os.Symlink(content, p)
		default:
			err = errors.Join(os.WriteFile(p, []byte(content), perm), os.Chmod(p, perm))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func tell(t *testing.T, dir string) tree {
	t.Helper()
	got := tree{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case e.Type() == fs.ModeSymlink:
			content, err = os.Readlink(p)
		case e.Type().IsRegular():
			var b []byte
			b, err = os.ReadFile(p)
			content = string(b)
		}
		name, _ := filepath.Rel(dir, p)
		got[name] = strings.TrimSuffix(info.Mode().String()+" "+content, " ")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// whole asserts I1 and I3 over what a commit that was cut short has left, and that it kept the
// order: files in the order of the commit, removals last.
func whole(t *testing.T, got, after tree) (leftovers int) {
	t.Helper()
	for name := range foreign {
		if got[name] != foreign[name] {
			t.Errorf("%s is %q, and was %q", name, got[name], foreign[name])
		}
	}
	for name, is := range got {
		switch {
		case is == before[name] || is == after[name] || is == foreign[name]:
		case name == "certs.d/new:5000" && strings.HasPrefix(is, "d"):
		case leftover.MatchString(name):
			leftovers++
		default:
			t.Errorf("%s is %.200q", name, is)
		}
	}
	replaced, made := got["etc/ca.crt"] == after["etc/ca.crt"], got["certs.d/new:5000/ca.crt"] != ""
	edited, removed := got["etc/kubeconfig"] == after["etc/kubeconfig"], got["certs.d/gone/ca.crt"] == ""
	if got["etc/ca.crt"] == "" || got["etc/kubeconfig"] == "" || edited && !replaced || made && !edited || removed &&
		!made {
		t.Errorf("out of order: replaced %v, edited %v, made %v, removed %v", replaced, edited, made, removed)
	}
	return leftovers
}

// finished asserts that got is exactly the end that the commit wants.
func finished(t *testing.T, got, after tree) {
	t.Helper()
	want := maps.Clone(after)
	maps.Copy(want, foreign)
	if !maps.Equal(got, want) {
		t.Errorf("in the end there is %.2000q, want %.2000q", got, want)
	}
}

// recover runs the next writer, with further words of the command.
func recover(t *testing.T, binary, dir string, after tree, how ...string) {
	t.Helper()
	if out, err := exec.Command(binary, append(how, "sweep", dir)...).CombinedOutput(); err != nil {
		t.Errorf("the next writer: %v: %s", err, out)
	}
	finished(t, tell(t, dir), after)
}

// strace runs the command under strace, which writes what it saw to log.
func strace(log string, command []string, options ...string) (code int, stderr string) {
	cmd := exec.Command("strace", slices.Concat([]string{"-f", "-qq", "-o", log}, options, command)...)
	var b bytes.Buffer
	cmd.Stderr = &b
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return -1, err.Error()
	}
	return cmd.ProcessState.ExitCode(), b.String()
}

// The calls that Go's runtime makes for itself: before the program begins, as often as it likes, or
// such that it does not live without them.
var runtimes = []string{"execve", "mmap", "pread64", "epoll_create1", "eventfd2", "epoll_ctl", "epoll_pwait", "fcntl"}

// calls counts the file system calls of an undisturbed commit, by name.
func calls(t *testing.T, binary, dir string) map[string]int {
	t.Helper()
	reset(t, dir)
	log := filepath.Join(t.TempDir(), "log")
	if code, stderr := strace(log, []string{binary, dir}, "-e", "trace=%file,%desc"); code != 0 {
		t.Fatalf("strace ends with %d (is it installed?): %s", code, stderr)
	}
	finished(t, tell(t, dir), after)
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	thread, _, _ := bytes.Cut(b, []byte(" "))
	for _, m := range regexp.MustCompile(`(?m)^([0-9]+) +([a-z0-9_]+)\(`).FindAllSubmatch(b, -1) {
		if bytes.Equal(m[1], thread) && !slices.Contains(runtimes, string(m[2])) {
			n[string(m[2])]++
		}
	}
	for _, name := range []string{"openat", "write", "fsync", "renameat", "unlinkat", "mkdirat", "flock"} {
		if n[name] == 0 {
			t.Fatalf("no %s among %v", name, n)
		}
	}
	return n
}

func TestKilledAtEverySystemCall(t *testing.T) {
	binary, dir := build(t), filepath.Join(t.TempDir(), "tree")
	kills, leftovers, torn := 0, 0, 0
	for name, count := range calls(t, binary, dir) {
		for i := 1; i <= count; i++ {
			t.Run(fmt.Sprintf("%s-%d", name, i), func(t *testing.T) {
				reset(t, dir)
				code, stderr := strace(os.DevNull, []string{binary, dir}, "-e", "trace="+name,
					"-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", name, i))
				if code == 0 || code == 1 {
					t.Fatalf("was not killed: %d %s", code, stderr)
				}
				kills++
				got := tell(t, dir)
				if n := whole(t, got, after); n > 0 {
					leftovers++
				}
				if got["etc/ca.crt"] == after["etc/ca.crt"] && got["certs.d/gone"] != "" {
					torn++
				}
				recover(t, binary, dir, after)
			})
		}
	}
	fmt.Printf("%d kills, %d in mid-commit, %d with leftovers\n", kills, torn, leftovers)
	if kills < 50 || torn == 0 || leftovers == 0 {
		t.Errorf("the kills did not reach all of the commit")
	}
}

// faults are what the calls of a commit can be told by a sick host; every call also gets EIO.
var faults = map[string][]string{
	"openat": {"ENOSPC", "EROFS", "EMFILE", "EACCES"}, "write": {"ENOSPC"}, "fsync": {"ENOSPC", "EROFS"},
	"renameat": {"ENOSPC", "EROFS"}, "unlinkat": {"EROFS"}, "mkdirat": {"ENOSPC", "EROFS", "EMFILE"},
}

func TestEveryFaultIsACleanError(t *testing.T) {
	binary, dir := build(t), filepath.Join(t.TempDir(), "tree")
	injected, failed := 0, 0
	for name, count := range calls(t, binary, dir) {
		for _, fault := range append([]string{"EIO"}, faults[name]...) {
			for i := 1; i <= count; i++ {
				// Only the i-th, and that and all that follow.
				for _, when := range []string{fmt.Sprint(i), fmt.Sprintf("%d+", i)} {
					t.Run(fmt.Sprintf("%s-%s-%s", name, when, fault), func(t *testing.T) {
						injected++
						if survive(t, binary, dir, name, fault, when) {
							failed++
						}
					})
				}
			}
		}
	}
	fmt.Printf("%d faults, %d made the commit fail\n", injected, failed)
}

// survive injects one fault and reports whether the commit failed.
func survive(t *testing.T, binary, dir, name, fault, when string) bool {
	t.Helper()
	reset(t, dir)
	code, stderr := strace(os.DevNull, []string{binary, dir}, "-e", "trace="+name,
		"-e", fmt.Sprintf("inject=%s:error=%s:when=%s", name, fault, when))
	got := tell(t, dir)
	switch code {
	case 0:
		finished(t, got, after)
	case 1:
		// A temporary file may stay only if it could not be unlinked; a close that failed is still open.
		if n := whole(t, got, after); n > 0 && name != "unlinkat" {
			t.Errorf("%d temporary files were left", n)
		}
		if got["certs.d/new:5000"] != "" && got["certs.d/new:5000/ca.crt"] == "" && name != "unlinkat" {
			t.Error("an empty directory was left")
		}
		if strings.Count(stderr, "\n") != 1 && name != "write" {
			t.Errorf("said %q, want one line", stderr)
		}
		if fault == "EROFS" && !strings.Contains(stderr, "writer read-only") {
			t.Errorf("said %q, want a read-only file system told apart", stderr)
		}
		recover(t, binary, dir, after)
	default:
		t.Errorf("ended with %d: %s", code, stderr)
	}
	return code != 0
}

// syncs are the files and directories that a run of the binary brings to stable storage, sorted. The
// names of temporary files end in an asterisk.
func syncs(t *testing.T, dir string, command ...string) (got []string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	args := append([]string{"-f", "-qq", "-o", log, "-y", "-e", "trace=/.*sync.*"}, append(command, dir)...)
	if out, err := exec.Command("strace", args...).CombinedOutput(); err != nil {
		t.Fatalf("strace: %v: %s", err, out)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^[0-9]+ +(?:f|fdata|sync)?sync(?:fs)?\([0-9]*<?([^>)]*)`).FindAllSubmatch(b,
		-1) {
		name, _ := filepath.Rel(dir, string(m[1]))
		got = append(got, regexp.MustCompile(`(crt|kubeconfig)[0-9]+$`).ReplaceAllString(name, "$1*"))
	}
	slices.Sort(got)
	return got
}

func TestEachChangeIsFsyncedOnce(t *testing.T) {
	binary, dir := build(t), filepath.Join(t.TempDir(), "tree")
	reset(t, dir)
	// The own directory that was removed is not among them: its parent says that it is gone.
	want := []string{"certs.d", "certs.d/new:5000", "certs.d/new:5000/.ca.crt*", "etc", "etc/.ca.crt*", "etc/.kubeconfig*"}
	if got := syncs(t, dir, binary); !slices.Equal(got, want) {
		t.Errorf("fsync of %q, want %q", got, want)
	}
}

func TestARotationOf25FilesIsOneFsyncForEachFileAndEachDirectory(t *testing.T) {
	binary, dir := build(t), t.TempDir()
	want := []string{"etc"}
	put := func(name string) {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte("old\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		want = append(want, filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+"*"))
	}
	for i := range 4 {
		put(fmt.Sprintf("etc/%d.crt", i))
	}
	for i := range 21 {
		own := fmt.Sprintf("certs.d/r%d:5000", i)
		put(own + "/ca.crt")
		want = append(want, own)
	}
	slices.Sort(want)
	if got := syncs(t, dir, binary, "rotate"); !slices.Equal(got, want) {
		t.Errorf("%d calls, want %d: fsync of %q, want %q", len(got), len(want), got, want)
	}
	for name, is := range tell(t, dir) {
		if strings.HasPrefix(is, "-") && is != "-rw-r--r-- rotated\n" {
			t.Errorf("%s is %q", name, is)
		}
	}
}
