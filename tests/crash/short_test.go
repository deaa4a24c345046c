// SPDX-License-Identifier: Apache-2.0

//go:build real

package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// large is the end of a commit whose files have several pages, each more than the one before.
var large = end(1000)

// page is what tmpfs accounts for. 16 of them are more than all files of the large commit.
const page, pages = 4096, 16

// smallDisk is a tmpfs with the tree before the commit in it.
type smallDisk struct{ mount, dir string }

func newSmallDisk(t *testing.T) smallDisk {
	t.Helper()
	d := smallDisk{mount: t.TempDir()}
	d.dir = filepath.Join(d.mount, "tree")
	if err := syscall.Mount("tmpfs", d.mount, "tmpfs", 0, "size=1m,mode=0755"); err != nil {
		t.Fatalf("mount a tmpfs (as root?): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.mount, 0); err != nil {
			t.Error(err)
		}
	})
	return d
}

// leave makes the tree anew, and the disk so small that n pages are free.
func (d smallDisk) leave(t *testing.T, n int) {
	t.Helper()
	d.resize(t, 1<<20)
	reset(t, d.dir)
	var st syscall.Statfs_t
	if err := syscall.Statfs(d.mount, &st); err != nil {
		t.Fatal(err)
	}
	d.resize(t, (int(st.Blocks-st.Bfree)+n)*page)
}

func (d smallDisk) resize(t *testing.T, size int) {
	t.Helper()
	if err := syscall.Mount("tmpfs", d.mount, "tmpfs", syscall.MS_REMOUNT, "size="+strconv.Itoa(size)); err != nil {
		t.Fatal(err)
	}
}

// cut is a write of which the kernel took a part, in a log of strace -y.
var cut = regexp.MustCompile(`(?m)write\([0-9]+<[^>]*/([^/>]+/\.[a-z.]+)[0-9]+>, .*, ([0-9]+)\) = ([0-9]+)$`)

// cuts counts them by file.
func cuts(t *testing.T, log string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, m := range cut.FindAllSubmatch(b, -1) {
		if string(m[2]) != string(m[3]) {
			n[string(m[1])]++
		}
	}
	return n
}

// fullDisks commits with each number of free pages and calls judge after each that failed; under are
// further options of strace.
func fullDisks(t *testing.T, judge func(stderr string, leftovers int), under ...string) {
	t.Helper()
	binary, d, log := build(t), newSmallDisk(t), filepath.Join(t.TempDir(), "log")
	seen, failed := map[string]int{}, 0
	for n := range pages {
		t.Run(fmt.Sprintf("%d-pages", n), func(t *testing.T) {
			d.leave(t, n)
			code, stderr := strace(log, []string{binary, "large", d.dir}, append([]string{"-y", "-e", "trace=write,unlinkat"},
				under...)...)
			if code == 0 {
				finished(t, tell(t, d.dir), large)
				return
			}
			if strings.Contains(stderr, "no space") {
				failed++
			}
			for name, k := range cuts(t, log) {
				seen[name] += k
			}
			got := tell(t, d.dir)
			judge(stderr, whole(t, got, large))
			if strings.Contains(stderr, "stage") && (got["etc/ca.crt"] != before["etc/ca.crt"] ||
				got["etc/kubeconfig"] != before["etc/kubeconfig"]) {
				t.Error("something became visible, and not all was staged")
			}
			d.resize(t, 1<<20)
			recover(t, binary, d.dir, large, "large")
		})
	}
	fmt.Printf("%d full disks, writes cut short by file: %v\n", failed, seen)
	// A file of n pages can be cut in n-1 places.
	if failed == pages || seen["etc/.ca.crt"] != 1 || seen["etc/.kubeconfig"] != 3 || seen["new:5000/.ca.crt"] != 4 {
		t.Errorf("%d of %d failed, and these were cut: %v", failed, pages, seen)
	}
}

func TestADiskThatIsFullInTheMiddleOfAWriteChangesNothing(t *testing.T) {
	fullDisks(t, func(stderr string, leftovers int) {
		if !strings.Contains(stderr, "no space left on device") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("said %q, want one line that names the full disk", stderr)
		}
		if leftovers > 0 {
			t.Errorf("%d temporary files were left", leftovers)
		}
	})
}

func TestWhatAFullDiskLeftHalfWrittenIsSweptAndNeverTakenForAFile(t *testing.T) {
	n := 0
	fullDisks(t, func(_ string, leftovers int) { n += leftovers }, "-e", "inject=unlinkat:error=EIO")
	if n == 0 {
		t.Error("no half-written file was left")
	}
}

// everyCut commits with limits to the size of a file (RLIMIT_FSIZE) at bytes of each of the three, where no
// page ends. A write that meets the limit is cut there and the next fails with EFBIG; the signal SIGXFSZ
// that comes with it is ignored by Go's runtime ("os/signal", sigtab_linux_generic.go). judge is told what
// is in the tree and at which byte a file was cut.
func everyCut(t *testing.T, judge func(t *testing.T, got tree, at, leftovers int), under ...string) {
	t.Helper()
	binary, dir := build(t), filepath.Join(t.TempDir(), "tree")
	for _, name := range []string{"etc/ca.crt", "etc/kubeconfig", "certs.d/new:5000/ca.crt"} {
		_, content, _ := strings.Cut(large[name], " ")
		for _, at := range []int{len(content) - 1, len(content) - 2, len(content) - 511, len(content) - 1000,
			len(content) - 2000} {
			t.Run(fmt.Sprintf("%s-%d", strings.ReplaceAll(name, "/", "-"), at), func(t *testing.T) {
				reset(t, dir)
				code, stderr := strace(os.DevNull, []string{"prlimit", "--core=0", "--fsize=" + strconv.Itoa(at), binary, "large",
					dir}, under...)
				if code != 1 || !strings.Contains(stderr, "file too large") || !strings.Contains(stderr, name) ||
					strings.Count(stderr, "\n") != 1 {
					t.Errorf("ended with %d and said %q, want one line that names the file and the limit", code, stderr)
				}
				got := tell(t, dir)
				judge(t, got, at, whole(t, got, large))
				recover(t, binary, dir, large, "large")
			})
		}
	}
}

func TestAWriteThatIsCutAtAnyByteChangesNothing(t *testing.T) {
	everyCut(t, func(t *testing.T, got tree, _, leftovers int) {
		if leftovers > 0 || got["certs.d/new:5000"] != "" {
			t.Errorf("%d temporary files were left, and the directory is %q", leftovers, got["certs.d/new:5000"])
		}
	}, "-e", "trace=none")
}

func TestWhatWasCutAtAnyByteAndLeftIsSweptAndNeverTakenForAFile(t *testing.T) {
	everyCut(t, func(t *testing.T, got tree, at, leftovers int) {
		for name, is := range got {
			if _, content, _ := strings.Cut(is, " "); leftover.MatchString(name) && len(content) == at {
				return
			}
		}
		t.Errorf("no file of %d bytes among %d that were left", at, leftovers)
	}, "-e", "trace=unlinkat", "-e", "inject=unlinkat:error=EIO")
}
