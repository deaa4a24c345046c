// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// Digest is the SHA-256 of a file's exact bytes. The zero value means that there is no file.
type Digest [sha256.Size]byte

// DigestOf is the digest of b.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

// parseDigest reads the lower-case hexadecimal form.
func parseDigest(s string) (d Digest, err error) {
	if len(s) != hex.EncodedLen(len(d)) {
		return Digest{}, errors.New("not a SHA-256 in hexadecimal")
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil || d.String() != s {
		return Digest{}, errors.New("not a SHA-256 in lower-case hexadecimal")
	}
	return d, nil
}

// String is the lower-case hexadecimal form, or "" for the zero digest.
func (d Digest) String() string {
	if d == (Digest{}) {
		return ""
	}
	return hex.EncodeToString(d[:])
}

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(b []byte) (err error) {
	*d = Digest{}
	if len(b) > 0 {
		*d, err = parseDigest(string(b))
	}
	return err
}

// ControllerConfig identifies the version of the ControllerConfig that something was read from. It is for
// records; no decision depends on it.
type ControllerConfig struct {
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Desired is what the ControllerConfig asks for, validated and projected onto the host's files.
type Desired struct {
	ControllerConfig ControllerConfig
	// Verified is set when the ControllerConfig was read over a verified connection since this host booted.
	// What was merely remembered may repair files but not remove them.
	Verified bool
	// Partial is set as long as only the second source has been read, and nothing of the ControllerConfig.
	Partial bool
	// Entries hold what shall be on disk, in field order and then by name, each path once.
	Entries []Entry
	// Listed names the fields whose list was present and not empty: only there does a missing entry
	// mean a removal.
	Listed map[Field]bool
	// Refused is what was asked for and is not fit for the disk; the last good file stays.
	Refused []Refusal
	// Revoked names certificates that go at once, wherever the ControllerConfig does not publish them.
	Revoked []pki.Fingerprint
	// Behind is set while nobody can tell whether the ControllerConfig still asks for this, because it is not followed
	// now, and ConfigMapBehind while that is so of the second source. No hold ends then.
	Behind, ConfigMapBehind bool
	// Paused is the reason for which nothing may be taken away and no unit acted on for now, or
	// empty. Trust still grows.
	Paused string
	// Now is set by an operator who confirms every removal that is asked for at this moment. What has to
	// wait all the same stays confirmed.
	Now bool
}

// Entry is the content one file shall have.
type Entry struct {
	Key
	// Data are the bytes of the file, as FileSpec.Entry makes them of what was published. They may be a secret:
	// no verb of fmt and no encoding shows them.
	Data   []byte `json:"-"`
	Digest Digest
	// AsIs is the digest of a file that holds all of this, and more or in another order, and is left as it
	// is; zero if the file shall be Data.
	AsIs  Digest
	Certs []pki.Cert
	// Warnings say what is questionable about Data.
	Warnings []string
	// Carried is set if the ControllerConfig does not ask for this now: see Desired.Carry.
	Carried bool
}

// Refusal says that something was asked for and will not be done. Reason is one line that holds no
// bytes of the rejected content.
type Refusal struct {
	Key
	Reason string `json:"reason"`
}

// FileKind tells what stands at a managed path.
type FileKind string

// Absent is the zero value. Irregular is anything that the field may not write over: what is not a
// regular file (a link that the field does not allow, a directory, a device), a file with a private key
// beside it, one that was to be edited and cannot; it is refused, never replaced. Unreadable means
// that the state could not be determined, and File.Reason says why.
const (
	Absent     FileKind = ""
	Regular    FileKind = "regular"
	Irregular  FileKind = "irregular"
	Unreadable FileKind = "unreadable"
)

// File is what was observed at a managed path. The zero value means that nothing is there. Of a
// kubeconfig, Digest and Data are those of its CA data alone, as PEM with a final newline; of a pull
// secret there is no Data.
type File struct {
	Kind   FileKind    `json:"kind,omitempty"`
	Digest Digest      `json:"digest,omitzero"`
	Mode   fs.FileMode `json:"mode,omitempty"`
	UID    int         `json:"uid,omitempty"`
	GID    int         `json:"gid,omitempty"`
	// Changed is the inode's change time (statx(2) stx_ctime): when these bytes came to this path,
	// or later. It is zero of a file that was written and not looked at since.
	Changed time.Time `json:"changed,omitzero"`
	// Directory is where the file is found if a link led there, and empty otherwise.
	Directory string `json:"directory,omitempty"`
	// Closed is set if the directory that the entry has for itself belongs to somebody else and keeps
	// the writer out. The file can be seen and not changed.
	Closed bool `json:"closed,omitempty"`
	// Reason is why nothing may be written there: it explains Irregular and Unreadable, and an absent file that
	// is not ours to make.
	Reason string `json:"reason,omitempty"`
	// Data holds the bytes if, and only if, they were asked for: see Query.Known.
	Data []byte `json:"data,omitempty"`
}

// Query asks for the state of one managed file. Bytes are returned only when the file's digest
// differs from Known, so that a look at an unchanged host moves no content.
type Query struct {
	Key
	Known Digest `json:"known,omitzero"`
}

// Observed is what the host has, by key.
type Observed map[Key]File

// Commit is what the writer is asked to do: keys, bytes and digests, in this order.
type Commit struct {
	Writes   []CommitWrite   `json:"writes,omitempty"`
	Removals []CommitRemoval `json:"removals,omitempty"`
}

// CommitWrite publishes Data at the key's path.
type CommitWrite struct {
	Key
	Data []byte `json:"data"`
}

// CommitRemoval unlinks the key's file if its digest still is Digest.
type CommitRemoval struct {
	Key
	Digest Digest `json:"digest"`
}

// Claim says that we wrote a file: only what is claimed may be removed.
type Claim struct {
	// Key is who asked for the file last.
	Key
	// Digests are the bytes that may be ours: one, or more until a commit is known to be done.
	Digests []Digest `json:"digests"`
	// Pending is durable before the commit and gone after it. An agent that was killed in between cannot
	// tell whose equal bytes are, and writes them again.
	Pending bool `json:"pending,omitempty"`
}

// Memory is what survives a restart of the agent. Losing it costs reloads, never trust. Of files it speaks
// by path, because two fields may name the same one and a file may pass from one to the other.
type Memory struct {
	Owned map[string]Claim
	Holds map[HoldKey]Hold
}

// Policy is the administrator's word about files: the host's file table, and how trust is taken away.
type Policy struct {
	Files []FileSpec
	Trust Trust
}

// File finds the file of a field.
func (p Policy) File(id Field) (FileSpec, bool) {
	for _, r := range p.Files {
		if r.Field == id {
			return r, true
		}
	}
	return FileSpec{}, false
}

// Path is where the file of k is on this host; ok is false if the table has no place for it.
func (p Policy) Path(k Key) (path string, ok bool) {
	spec, ok := p.File(k.Field)
	if !ok {
		return "", false
	}
	path, err := spec.PathOf(k.Name)
	return path, err == nil
}

// Moment is the present, as far as decisions may depend on it.
type Moment struct {
	// Boot identifies this run of the kernel, and Uptime is how long it has lasted, sleep included
	// (CLOCK_BOOTTIME of clock_gettime(2)). Nobody can set it, so waits are counted in it.
	Boot   string
	Uptime time.Duration
	// Wall is the host's clock if it is believed, else zero: then nothing is taken for expired.
	Wall time.Time
}
