// SPDX-License-Identifier: Apache-2.0

// Package disk owns every change of a file that this project makes: it observes managed files,
// stages and commits new ones, removes what we own, and sweeps what a killed commit left behind. It
// is the only user of renameio.
//
// It promises that a managed path holds a complete version at every instant (it is renamed over,
// never opened for writing), that nothing visible changes before everything is staged and on stable
// storage, and that a commit that returned nil survives a loss of power. It refuses to touch what is
// not a regular file, and it never follows a symbolic link that somebody other than root could have
// made.
//
// It does not promise atomicity over several files: a failed rename stops the commit, and the next
// reconcile plans again from disk. Nor does it defend against root, who may change a directory between
// our look at it and our act.
//
// Sources: rename(2), fsync(2), open(2), flock(2); google/renameio v2 for the staging itself; Theodore
// Ts'o on why the fsync before the rename is needed (quoted in renameio's CloseAtomicallyReplace).
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// MaxSize is the largest file, in bytes, that is observed or written. A bundle has at most half of
// it (design: 1 MiB), so that one with held certificates appended still fits.
const MaxSize = 2 << 20

// ErrReadOnly is EROFS. In a mount namespace it also means that a directory was replaced behind the
// service's back: only a new process sees the new directory writable.
var ErrReadOnly error = syscall.EROFS

// ErrUntouched means that a commit failed before it changed anything that can be seen.
var ErrUntouched = errors.New("nothing was changed")

// ErrReplaced means that a directory was moved or made anew while a commit was under way: what was
// written may stand in the old one.
var ErrReplaced = errors.New("the directory was replaced meanwhile")

// Target says where a managed file lives and what it must look like there.
type Target struct {
	// Path is absolute and clean, in the name space of the Tree.
	Path string
	// Mode holds permission bits; the umask does not apply.
	Mode fs.FileMode
	// UID and GID own the file; -1 leaves what the system gives to a new file.
	UID, GID int
	// KeepMode lets a file that is there keep its mode where that grants less than Mode.
	KeepMode bool
	// FollowLink allows Path to be a symbolic link, if it and its directory belong to root.
	FollowLink bool
	// OwnDirectory says that the file's directory exists for it alone: it is made (0755) before the
	// file and removed, when empty, after it.
	OwnDirectory bool
	// Bundle says that the file holds certificates: if the private key of one may lie beside it
	// (privateKeys), it is irregular.
	Bundle bool
	// Editor says that only part of the file is ours. Then Mode and owner do not count: the file keeps
	// those it has, is not made if it is missing, and is not removed.
	Editor *Editor
}

// Editor is a part of a file that somebody else makes. Errors are the reason why the file is left as it
// is, and hold no content.
type Editor struct {
	// Get takes the part out of a file, and Set puts another in its place. Neither changes its
	// arguments.
	Get func(file []byte) (part []byte, err error)
	Set func(file, part []byte) (changed []byte, err error)
}

// TargetOf is the target of a field's entry. It fails if the name is not fit for the field.
func TargetOf(spec plan.FileSpec, name string) (Target, error) {
	p, err := spec.PathOf(name)
	if err != nil {
		return Target{}, err
	}
	dir := path.Dir(p)
	if spec.OwnDirectory() {
		dir = path.Dir(dir)
	}
	if !path.IsAbs(p) || path.Clean(p) != p || dir != spec.Directory() {
		return Target{}, fmt.Errorf("field %s: file %q is not an absolute path whose last or last but one element is the "+
			"entry's", spec.Field, spec.Path)
	}
	return Target{Path: p, Mode: spec.Mode, UID: spec.UID, GID: spec.GID,
		KeepMode: spec.KeepsMode(), FollowLink: spec.FollowLink, OwnDirectory: spec.OwnDirectory(),
		Bundle: !spec.Field.Secret() && !spec.Field.Edits()}, nil
}

// Tree is a host's file system, or the part of one below a directory. Its methods may be called
// concurrently; commits and sweeps run one at a time.
type Tree struct {
	below *os.Root // nil: the host itself
	mu    sync.Mutex
}

// Open opens the tree at root. "/" is the host, where directories are resolved as the kernel does.
// Any other root is the top of every path, and nothing outside it is reached: links that are
// absolute or lead out are errors (see os.Root).
func Open(root string) (*Tree, error) {
	if path.Clean(root) == "/" {
		return &Tree{}, nil
	}
	below, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open tree: %w", err)
	}
	return &Tree{below: below}, nil
}

// stat describes what stands at p, links followed.
func (t *Tree) stat(p string) (fs.FileInfo, error) {
	if t.below == nil {
		return os.Stat(p)
	}
	return t.below.Stat(beneath(p))
}

func (t *Tree) openRoot(p string) (*os.Root, error) {
	if t.below == nil {
		return os.OpenRoot(p)
	}
	return t.below.OpenRoot(beneath(p))
}

// beneath makes an absolute path relative to the tree's root. It does not clean it: ".." after a
// link is for the resolver to judge.
func beneath(p string) string {
	if p = strings.TrimLeft(p, "/"); p == "" {
		return "."
	}
	return p
}

// directory is an open directory. It is never kept over operations: a handle to a directory that
// was replaced meanwhile would write where nobody looks.
type directory struct {
	path   string
	parent *directory  // set if this is some file's own directory
	info   fs.FileInfo // what stood at path when it was opened
	root   *os.Root
	handle *os.File // opened by openForSync
	made   bool     // by this session
	dirty  bool     // has a change that is not on stable storage
}

// openForSync announces a change in d. The handle for the later fsync is opened now, so that a shortage of
// descriptors is met before anything visible is done.
func (d *directory) openForSync() (err error) {
	if d.handle == nil {
		d.handle, err = d.root.Open(".")
	}
	return err
}

// session is one operation's view of the tree: the directories it has open.
type session struct {
	tree *Tree
	dirs map[string]*directory
	made []*directory // own directories, in the order in which they were made
	held []*os.File   // replaced files whose end is put off
}

func (t *Tree) newSession() *session { return &session{tree: t, dirs: map[string]*directory{}} }

func (ses *session) close() {
	for _, d := range ses.dirs {
		d.close()
	}
	for _, f := range ses.held {
		_ = f.Close()
	}
}

func (d *directory) close() {
	_ = d.root.Close()
	if d.handle != nil {
		_ = d.handle.Close()
	}
}

// open opens the directory at p.
func (ses *session) open(p string) (*directory, error) {
	if d, ok := ses.dirs[p]; ok {
		return d, nil
	}
	// Looked at first: to open a fifo would wait for its writer.
	info, err := ses.tree.stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing("its directory " + p + " does not exist")
	}
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", p, unwrapPath(err))
	}
	if !info.IsDir() {
		return nil, irregular("its directory " + p + " is " + describe(info))
	}
	root, err := ses.tree.openRoot(p)
	return ses.keep(&directory{path: p, info: info, root: root}, err)
}

// keep has the session close d, unless it could not be opened.
func (ses *session) keep(d *directory, err error) (*directory, error) {
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", d.path, unwrapPath(err))
	}
	ses.dirs[d.path] = d
	return d, nil
}

// openDir opens the own directory name in parent, or returns nil if there is none. A link is refused:
// the name comes from the cluster and must not choose where root writes.
func (ses *session) openDir(parent *directory, name string) (*directory, error) {
	p := path.Join(parent.path, name)
	if d, ok := ses.dirs[p]; ok {
		return d, nil
	}
	info, err := parent.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", p, unwrapPath(err))
	}
	if !info.IsDir() {
		return nil, irregular("its directory is " + describe(info))
	}
	root, err := parent.root.OpenRoot(name)
	return ses.keep(&directory{path: p, parent: parent, info: info, root: root}, err)
}

// location is where a target was found to live.
type location struct {
	parent *directory  // of the own directory, else nil
	own    string      // the own directory's name in parent
	dir    *directory  // nil while the own directory does not exist
	base   string      // the file's name in dir
	info   fs.FileInfo // nil while the file does not exist
	// followed is the path of dir if a link led there, else empty.
	followed string
}

// find locates a target. It fails with an irregular if something else than a regular file is there.
func (ses *session) find(target Target) (loc location, err error) {
	dir := path.Dir(target.Path)
	loc.base = path.Base(target.Path)
	if target.OwnDirectory {
		loc.own = path.Base(dir)
		if loc.parent, err = ses.open(path.Dir(dir)); err == nil {
			loc.dir, err = ses.openDir(loc.parent, loc.own)
		}
	} else {
		loc.dir, err = ses.open(dir)
	}
	if err != nil || loc.dir == nil {
		return loc, err
	}
	if err := loc.lstat(); err != nil {
		return loc, err
	}
	if loc.info != nil && loc.info.Mode().Type() == fs.ModeSymlink && target.FollowLink {
		if loc, err = ses.follow(loc); err != nil {
			return loc, err
		}
	}
	switch {
	case loc.info != nil && !loc.info.Mode().IsRegular():
		return loc, irregular(describe(loc.info))
	case loc.info == nil && target.Editor != nil:
		return loc, missing("missing, and it is not ours to make")
	case target.Bundle:
		return loc, loc.checkNoKey()
	}
	return loc, nil
}

// privateKeys names the files that would hold the private key of a bundle called base, in the ways of
// kubeadm (ca.crt, ca.key) and cfssl (ca.pem, ca-key.pem). The tree never writes beside one: what lies
// there is no bundle but a CA's own certificate, with which somebody signs.
func privateKeys(base string) []string {
	stem := strings.TrimSuffix(base, path.Ext(base))
	return []string{stem + ".key", stem + "-key.pem"}
}

// checkNoKey fails if a private key may lie beside the file.
func (loc location) checkNoKey() error {
	for _, name := range privateKeys(loc.base) {
		if _, err := loc.dir.root.Lstat(name); err == nil {
			return irregular("beside a private key, " + name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return unwrapPath(err)
		}
	}
	return nil
}

func (loc *location) lstat() error {
	info, err := loc.dir.root.Lstat(loc.base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unwrapPath(err)
	}
	loc.info = info
	return nil
}

// follow goes through one symbolic link, if nobody but root can have made it.
func (ses *session) follow(link location) (location, error) {
	if !trusted(link.info) || !trusted(link.dir.info) || link.dir.info.Mode().Perm()&0o022 != 0 {
		return link, irregular("a symbolic link that others than root can change")
	}
	dest, err := link.dir.root.Readlink(link.base)
	if err != nil {
		return link, unwrapPath(err)
	}
	// The path stays unclean: what "dir/.." means depends on whether dir is a link.
	if !path.IsAbs(dest) {
		dest = link.dir.path + "/" + dest
	}
	dir, base := path.Split(dest)
	if base == "" || base == "." || base == ".." {
		return link, irregular("a symbolic link to a directory")
	}
	loc := location{base: base}
	if loc.dir, err = ses.open(strings.TrimRight(dir, "/") + "/"); err != nil {
		return link, err
	}
	loc.followed = path.Clean(loc.dir.path)
	return loc, loc.lstat()
}

// trusted reports whether only root, or in plain mode we ourselves, could have made the inode.
func trusted(info fs.FileInfo) bool {
	uid := int(info.Sys().(*syscall.Stat_t).Uid)
	return uid == 0 || uid == os.Geteuid()
}

// irregular is the error for what may not be replaced; its text completes "the path is ...".
type irregular string

func (e irregular) Error() string { return string(e) }

// missing is the error for a file that is not there and cannot be made: its directory is the host's, or only
// a part of it is ours.
type missing string

func (e missing) Error() string { return string(e) }

func describe(info fs.FileInfo) string {
	switch info.Mode().Type() {
	case 0:
		return "a regular file"
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeSocket:
		return "a socket"
	}
	return "a device"
}

// unwrapPath strips the names that package os puts into its errors: ours are longer, and the random name
// of a temporary file would make every repetition of an error a new one.
func unwrapPath(err error) error {
	var file *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &file):
		return fmt.Errorf("%s: %w", file.Op, file.Err)
	case errors.As(err, &link):
		return fmt.Errorf("%s: %w", link.Op, link.Err)
	}
	return err
}
