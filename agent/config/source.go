// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/packaging/profiles"
)

// maxFile is the largest configuration file that is read. The profile with all its comments has 6 kB.
const maxFile = 256 << 10

// profileDir is where the package installs the profiles, for people to read and sites to replace.
const profileDir = "usr/share/node-cert-agent/profiles"

// Options says where configuration is looked for.
type Options struct {
	// Root is the root of the host's file system; "" means "/". With any other root the process is
	// in plain mode: files may also belong to the current user, and other users' write access is not
	// looked at.
	Root string
	// Dirs replace the three config.d directories, the strongest last. They are not beneath Root and
	// have to exist.
	Dirs []string
}

func (o Options) plain() bool { return o.Root != "" && filepath.Clean(o.Root) != "/" }

// Watch lists the directories whose entries Load looks at, those that do not exist included: when
// something in one of them changes, Load may give other Settings.
func (o Options) Watch() []string {
	r := newReader(o)
	dirs := []string{r.profileDir.String()}
	for _, d := range r.dirs {
		dirs = append(dirs, d.String())
	}
	return dirs
}

// source is one configuration file. Without text it sets nothing: it is empty or a mask.
type source struct {
	path string
	text []byte
}

// place is a directory, of which everything from base on is resolved without leaving base.
type place struct {
	base, rel string
	required  bool
}

func (p place) String() string { return filepath.Join(p.base, p.rel) }

// reader opens configuration files and decides whether to believe them.
type reader struct {
	dirs       []place // weakest first
	profileDir place
	plain      bool
}

func newReader(o Options) reader {
	r := reader{plain: o.plain()}
	beneath := func(rel string) place {
		if r.plain {
			return place{base: o.Root, rel: rel}
		}
		return place{base: "/" + filepath.Dir(rel), rel: filepath.Base(rel)}
	}
	r.profileDir = beneath(profileDir)
	for _, d := range o.Dirs {
		if abs, err := filepath.Abs(d); err == nil {
			d = abs
		}
		r.dirs = append(r.dirs, place{filepath.Dir(d), filepath.Base(d), true})
	}
	if len(o.Dirs) == 0 {
		for _, top := range []string{"usr/lib", "run", "etc"} {
			r.dirs = append(r.dirs, beneath(top+"/node-cert-agent/config.d"))
		}
	}
	return r
}

// fragments reads the fragments in force, in the order of their names.
func (r reader) fragments() (found []source, problems []error) {
	winner := map[string]*folder{}
	for _, d := range r.dirs {
		dir, err := r.open(d)
		if err != nil {
			problems = append(problems, &Error{File: d.String(), Problem: err.Error()})
		}
		if dir == nil {
			continue
		}
		defer dir.root.Close()
		for _, name := range dir.names {
			winner[name] = dir
		}
	}
	for _, name := range slices.Sorted(maps.Keys(winner)) {
		s, err := winner[name].read(name)
		if err != nil {
			problems = append(problems, &Error{File: s.path, Problem: err.Error()})
			continue
		}
		found = append(found, s)
	}
	return found, problems
}

// profiles reads the base profile and, over it, the chosen one: from the host if it is there, else
// from the binary.
func (r reader) profiles(choice input) (found []source, problems []error) {
	name, ok := choice.value.(string)
	if !ok {
		name = profiles.Base
	}
	dir, err := r.open(r.profileDir)
	if err != nil {
		problems = append(problems, &Error{File: r.profileDir.String(), Problem: err.Error()})
	}
	known := builtinProfiles()
	found = append(found, known[profiles.Base])
	if dir != nil {
		defer dir.root.Close()
		for _, file := range dir.names {
			s := source{path: filepath.Join(dir.path, file)}
			if file == name+".yaml" {
				if s, err = dir.read(file); err != nil {
					problems = append(problems, &Error{File: s.path, Problem: err.Error()})
				}
			}
			known[strings.TrimSuffix(file, ".yaml")] = s
		}
	}
	s, ok := known[name]
	if !ok {
		problems = append(problems, choice.problem("profile", "no profile %q; want one of %s",
			name, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
	}
	if s.path != found[0].path {
		found = append(found, s)
	}
	return found, problems
}

// builtinProfiles are those in the binary. Reading an embedded file cannot fail.
func builtinProfiles() map[string]source {
	known := map[string]source{}
	files, _ := fs.Glob(profiles.FS, "*.yaml")
	for _, f := range files {
		text, _ := profiles.FS.ReadFile(f)
		known[strings.TrimSuffix(f, ".yaml")] = source{"builtin:" + f, text}
	}
	return known
}

// folder is an open directory of configuration files.
type folder struct {
	path  string
	root  *os.Root
	names []string
	plain bool
}

// open gives nil without an error if the directory does not exist and need not.
func (r reader) open(p place) (*folder, error) {
	base, err := os.OpenRoot(p.base)
	if errors.Is(err, fs.ErrNotExist) && !p.required {
		return nil, nil
	}
	if err != nil {
		return nil, bare(err)
	}
	defer base.Close()
	// The last element must not be a link: the agent's user owns /run/node-cert-agent, and a link in
	// there could offer it any root-owned directory of YAML files as configuration.
	info, err := base.Lstat(p.rel)
	if errors.Is(err, fs.ErrNotExist) && !p.required {
		return nil, nil
	}
	if err != nil {
		return nil, bare(err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("not a directory: %s", kind(info))
	}
	root, err := base.OpenRoot(p.rel)
	if err != nil {
		return nil, bare(err)
	}
	f := &folder{path: p.String(), root: root, plain: r.plain}
	if err := f.list(info); err != nil {
		root.Close()
		return nil, err
	}
	return f, nil
}

// list fills in the names of the files that count. Hidden files are editors' and package managers'
// leftovers.
func (f *folder) list(seen fs.FileInfo) error {
	d, err := f.root.Open(".")
	if err != nil {
		return bare(err)
	}
	defer d.Close()
	info, err := d.Stat()
	if err != nil {
		return bare(err)
	}
	if !os.SameFile(info, seen) {
		return errors.New("was replaced while it was opened")
	}
	if err := trusted(info, f.plain); err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err != nil {
		return bare(err)
	}
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "."):
		case strings.HasSuffix(name, ".yaml"):
			f.names = append(f.names, name)
		case strings.HasSuffix(name, ".yml"):
			// Whoever wrote it expects it to count.
			return fmt.Errorf("%q would not be read: the names of fragments end in .yaml", name)
		}
	}
	return nil
}

// read returns the file's text; a link to /dev/null reads as empty. The path is set in any case.
func (f *folder) read(name string) (source, error) {
	s := source{path: filepath.Join(f.path, name)}
	info, err := f.root.Lstat(name)
	if err != nil {
		return s, bare(err)
	}
	if info.Mode().Type() == fs.ModeSymlink {
		if target, err := f.root.Readlink(name); err == nil && target == os.DevNull {
			return s, trusted(info, f.plain)
		}
	}
	if !info.Mode().IsRegular() {
		return s, fmt.Errorf("not a regular file: %s", kind(info))
	}
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return s, bare(err)
	}
	defer file.Close()
	opened, err := file.Stat()
	if err != nil {
		return s, bare(err)
	}
	if !os.SameFile(info, opened) {
		return s, errors.New("was replaced while it was opened")
	}
	if err := trusted(opened, f.plain); err != nil {
		return s, err
	}
	s.text, err = io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return s, bare(err)
	}
	if len(s.text) > maxFile {
		return s, fmt.Errorf("larger than %d bytes", maxFile)
	}
	return s, nil
}

// trusted refuses what somebody other than root could have written: configuration decides where a
// root process writes. In plain mode no root process is involved.
func trusted(info fs.FileInfo, plain bool) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("has no owner that can be seen")
	case plain && int(st.Uid) == os.Geteuid():
		return nil
	case st.Uid != 0:
		return fmt.Errorf("owned by uid %d: configuration must belong to root", st.Uid)
	case !plain && info.Mode().Type() != fs.ModeSymlink && info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("writable by group or others (mode %04o): only root may change configuration", info.Mode().Perm())
	}
	return nil
}

func kind(info fs.FileInfo) string {
	switch info.Mode().Type() {
	case 0:
		return "a regular file"
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSymlink:
		return "a symbolic link"
	}
	return "a device, pipe or socket"
}

// bare strips operation and path from err, which an Error names already.
func bare(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// digest covers names and lengths too, so that text cannot move between files unseen.
func digest(sources []source) (d plan.Digest) {
	h := sha256.New()
	for _, s := range sources {
		for _, part := range [][]byte{[]byte(s.path), s.text} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			h.Write(part)
		}
	}
	h.Sum(d[:0])
	return d
}

// Stamp is a value that changes whenever Load might give other Settings: it covers name, inode,
// change time, size, mode and owner of all that Load would look at, and reads no file. It costs a few
// system calls a file, for processes that have no inotify.
func (o Options) Stamp() (uint64, error) {
	h := fnv.New64a()
	for _, dir := range o.Watch() {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("configuration: %w", err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				return 0, fmt.Errorf("configuration: %w", err)
			}
			st := info.Sys().(*syscall.Stat_t)
			fmt.Fprintln(h, filepath.Join(dir, e.Name()), st.Ino, st.Ctim.Sec, st.Ctim.Nsec, st.Size, st.Mode, st.Uid, st.Gid)
		}
	}
	return h.Sum64(), nil
}
