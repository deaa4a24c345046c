// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Options say what host to boot. The zero value is a plain one named "node".
type Options struct {
	// Release is the release of the root that the host boots from.
	Release Release
	// Packages are further packages of the distribution that the root has.
	Packages []string
	// Base is a root to boot from in place of one that Root makes: a directory that stays as it is.
	Base string
	// Name is the host name; any number of hosts may bear the same.
	Name string
	// Trees are directories whose content is copied over the root before the first boot, in order,
	// as an install would: owner root, directories 0755, files 0755 or 0644, symbolic links as they are.
	Trees []string
	// Files are put after the trees, by absolute path. Missing directories are made, root 0755.
	Files map[string]File
	// Enable names units to enable as systemctl(1) does.
	Enable []string
	// Prepare, if not nil, works on the host's disk, mounted on the directory root, after all that and
	// before the first boot, as what provisions a machine does.
	Prepare func(ctx context.Context, root string) error
	// Nspawn are further arguments for systemd-nspawn(1).
	Nspawn []string
}

// File is the content of one file of the host.
type File struct {
	Data     []byte
	Mode     fs.FileMode // permission bits; 0 means 0644
	UID, GID int
}

// Host is a booted system. Its methods may be used from several goroutines.
type Host struct {
	machine string // name for systemd-nspawn and cgroups, unique on this machine
	dir     string // everything of this host; holds lock, upper, work, root and console
	opts    Options
	lock    *os.File
	netns   *os.File
	groups  []string // a cgroup in each hierarchy

	power sync.Mutex // held by what turns the host on or off

	mu     sync.Mutex
	boot   *boot           // the latest; nil before the first
	next   context.Context // ends when the host is up the next time
	booted context.CancelFunc
	ports  map[*Port]struct{}
	gone   bool
}

// Boot starts a new host and returns when its default target is reached. If ctx ends first, or the
// host does not come up, nothing is left and the error holds the end of the console.
func Boot(ctx context.Context, opts Options) (*Host, error) {
	base := opts.Base
	if base == "" {
		var err error
		if base, err = Root(ctx, opts.Release, opts.Packages...); err != nil {
			return nil, err
		}
	}
	if opts.Name == "" {
		opts.Name = "node"
	}
	h := &Host{opts: opts, ports: map[*Port]struct{}{}}
	h.next, h.booted = context.WithCancel(context.Background())
	err := h.claim(ctx)
	if err == nil {
		err = h.prepare(ctx, base)
	}
	if err == nil {
		err = h.Start(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("boot host %s: %w", opts.Name, errors.Join(err, h.Stop()))
	}
	return h, nil
}

// claim makes the host's directory and locks it, and clears away hosts whose lock nobody holds.
func (h *Host) claim(ctx context.Context) error {
	store, err := storeDir()
	if err != nil {
		return err
	}
	running := filepath.Join(store, "running")
	if err := os.MkdirAll(running, 0o700); err != nil {
		return err
	}
	// Without this lock a host could be taken for dead between the making of its directory and
	// the taking of its own lock.
	all, err := lockFile(ctx, filepath.Join(store, "running.lock"))
	if err != nil {
		return err
	}
	defer all.Close()
	if err := removeDead(running); err != nil {
		return err
	}
	if h.dir, err = os.MkdirTemp(running, h.opts.Name+"-"); err != nil {
		return err
	}
	h.machine = filepath.Base(h.dir)
	h.lock, err = lockFile(ctx, filepath.Join(h.dir, "lock"))
	return err
}

// prepare makes disk, network namespace and cgroups.
func (h *Host) prepare(ctx context.Context, base string) (err error) {
	if err := mountDisk(base, h.dir); err != nil {
		return err
	}
	if err := h.install(ctx); err != nil {
		return err
	}
	if h.netns, err = newNetns(); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	h.groups, err = cgroupsOf(h.machine)
	return err
}

// Start boots the host again after Kill.
func (h *Host) Start(ctx context.Context) error {
	h.power.Lock()
	defer h.power.Unlock()
	return h.start(ctx)
}

func (h *Host) start(ctx context.Context) error {
	if h.gone {
		return fmt.Errorf("start host %s: it was stopped for good", h.opts.Name)
	}
	if h.latest().running() {
		return fmt.Errorf("start host %s: it is running", h.opts.Name)
	}
	b, err := h.spawn()
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.boot = b
	h.mu.Unlock()
	if err := b.ready(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.booted()
	h.next, h.booted = context.WithCancel(context.Background())
	return nil
}

func (h *Host) latest() *boot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boot
}

// nextBoot is a context that ends when the host has come up the next time.
func (h *Host) nextBoot() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next
}

// Kill ends every process of the host at once, as a loss of power does, and returns when none is
// left. The files stay, also those not yet on the disk of the outer machine.
func (h *Host) Kill() {
	h.power.Lock()
	defer h.power.Unlock()
	h.latest().kill()
}

// Reboot reboots the host in order and returns when it is up again.
func (h *Host) Reboot(ctx context.Context) error {
	h.power.Lock()
	defer h.power.Unlock()
	b := h.latest()
	if err := b.shutdown(ctx, sigReboot); err != nil {
		return fmt.Errorf("reboot host %s: %w", h.opts.Name, err)
	}
	if b.code() != exitReboot {
		return fmt.Errorf("reboot host %s: systemd-nspawn exited with %d, want %d: %s", h.opts.Name, b.code(), exitReboot,
			b.console())
	}
	return h.start(ctx)
}

// Stop powers the host off in order, by force if that takes more than 20 seconds, and removes
// everything of it. It may be called more than once, and suits t.Cleanup.
func (h *Host) Stop() error {
	h.power.Lock()
	defer h.power.Unlock()
	if h.gone {
		return nil
	}
	h.gone = true
	if b := h.latest(); b.running() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		_ = b.shutdown(ctx, sigPoweroff) // what refuses to go is killed
		cancel()
		b.kill()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.ports {
		p.Close()
	}
	h.booted()
	var err error
	if h.dir != "" {
		err = remove(h.dir)
	}
	for _, f := range []*os.File{h.netns, h.lock} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// leader is the process id of the host's systemd as seen from outside.
func (h *Host) leader() (int, error) {
	b := h.latest()
	switch {
	case b.isUp():
		return b.leader, nil
	case b.running():
		return 0, fmt.Errorf("host %s is still booting", h.opts.Name)
	case b == nil:
		return 0, fmt.Errorf("host %s was not booted", h.opts.Name)
	case b.code() == exitReboot:
		return 0, fmt.Errorf("host %s is down: it rebooted by itself", h.opts.Name)
	}
	return 0, fmt.Errorf("host %s is down: systemd-nspawn exited with %d", h.opts.Name, b.code())
}

// Dir is the directory on the outer machine that holds everything of the host. It is gone after Stop.
func (h *Host) Dir() string { return h.dir }

// Path is where the file p of the host is found from outside: on its disk, or, while the host runs,
// in what its systemd sees, so that /run, /tmp and /proc are its own too. Absolute symbolic links
// on the way lead to the outer machine, hence writes belong to PutFile.
func (h *Host) Path(p string) string {
	if pid, err := h.leader(); err == nil {
		return filepath.Join("/proc", fmt.Sprint(pid), "root", p)
	}
	return filepath.Join(h.dir, "root", p)
}

// PutFile writes a file of the host by rename, running or not. Missing directories are made, root
// 0755. A path that leads out of the host, through an absolute symbolic link too, is refused.
func (h *Host) PutFile(p string, f File) error {
	root, err := os.OpenRoot(h.Path("/"))
	if err != nil {
		return fmt.Errorf("put %s on host %s: %w", p, h.opts.Name, err)
	}
	defer root.Close()
	if err := put(root, strings.TrimPrefix(p, "/"), f); err != nil {
		return fmt.Errorf("put %s on host %s: %w", p, h.opts.Name, err)
	}
	return nil
}
