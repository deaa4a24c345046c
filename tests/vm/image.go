// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// packages go into a machine's root on top of those of a test host.
var packages = []string{"linux-image-cloud-amd64", "selinux-policy-default", "policycoreutils"}

// diskSize is sparse: about 1 GB of it is used.
const diskSize = "4G"

// image is a machine's disk, and the kernel on it, which qemu loads by itself.
type image struct {
	disk, kernel, initrd string
}

// fit says in one sentence why this machine cannot run the tests, if it cannot.
func fit() error {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return err
	}
	if runtime.GOARCH != "amd64" || !bytes.Contains(b, []byte("\nVERSION_CODENAME=bookworm\n")) {
		return errors.New("the virtual machines are made of Debian 12 on amd64, by the sources of a machine with the same")
	}
	for program, pkg := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "mkfs.ext4": "e2fsprogs",
		"debugfs": "e2fsprogs"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("a virtual machine needs the program %s (apt-get install %s)", program, pkg)
		}
	}
	return nil
}

// newImage makes a disk in dir with the root of a machine and files on it, by absolute path.
func newImage(ctx context.Context, dir string, files map[string]host.File) (image, error) {
	root, err := host.Root(ctx, host.Same, packages...)
	if err != nil {
		return image{}, err
	}
	i := image{disk: filepath.Join(dir, "disk")}
	for pattern, name := range map[string]*string{"boot/vmlinuz-*": &i.kernel, "boot/initrd.img-*": &i.initrd} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is well formed
		if len(found) != 1 {
			return image{}, fmt.Errorf("%s/%s: found %d files, want one", root, pattern, len(found))
		}
		*name = found[0]
	}
	if err := tool(ctx, "mkfs.ext4", "-q", "-d", root, i.disk, diskSize); err != nil {
		return image{}, err
	}
	return i, i.put(ctx, root, files)
}

// put writes files on the disk without mounting it: a test that is killed leaves no mount behind.
func (i image) put(ctx context.Context, root string, files map[string]host.File) error {
	dir, err := os.MkdirTemp(filepath.Dir(i.disk), "put")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	made := map[string]bool{}
	var script strings.Builder
	var mkdir func(string)
	mkdir = func(p string) {
		if fi, err := os.Stat(filepath.Join(root, p)); made[p] || err == nil && fi.IsDir() {
			return
		}
		mkdir(path.Dir(p))
		made[p] = true
		fmt.Fprintf(&script, "mkdir %s\n", p)
	}
	for n, p := range slices.Sorted(maps.Keys(files)) {
		f := files[p]
		local := filepath.Join(dir, fmt.Sprint(n))
		if err := os.WriteFile(local, f.Data, 0o644); err != nil {
			return err
		}
		mkdir(path.Dir(p))
		fmt.Fprintf(&script, "rm %s\nwrite %s %s\n", p, local, p)
		if f.Mode != 0 {
			fmt.Fprintf(&script, "set_inode_field %s mode 0100%o\n", p, f.Mode.Perm())
		}
	}
	// debugfs(8) goes on after an error, and ends with 0.
	commands := filepath.Join(dir, "commands")
	if err := os.WriteFile(commands, []byte(script.String()), 0o600); err != nil {
		return err
	}
	err = tool(ctx, "debugfs", "-w", "-f", commands, i.disk)
	return err
}

// read copies directories of a disk whose machine is off to a directory of this machine, and says what is in
// them: files by absolute path. As a boot would, it first has the journal of the file system replayed.
func (i image) read(ctx context.Context, dir string, names ...string) (map[string][]byte, error) {
	err := tool(ctx, "e2fsck", "-fp", i.disk)
	// 1 is the status of a journal that was replayed, see e2fsck(8).
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return nil, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	for _, name := range names {
		to := filepath.Join(dir, path.Dir(name))
		if err := os.MkdirAll(to, 0o700); err != nil {
			return nil, err
		}
		if err := tool(ctx, "debugfs", "-R", "rdump "+name+" "+to, i.disk); err != nil {
			return nil, err
		}
	}
	err = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		found[strings.TrimPrefix(p, dir)] = data
		return err
	})
	return found, err
}

// tool runs a program of this machine.
func tool(ctx context.Context, name string, args ...string) error {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s%s", name, err, out.String(), errs.String())
	}
	return nil
}
