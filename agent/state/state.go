// SPDX-License-Identifier: Apache-2.0

// Package state keeps what must survive a restart of the agent: what each unit has loaded, or how often
// it was asked in vain, which files are ours, and the last good content of every file as 0600 blobs.
//
// state.json carries a version and a checksum. A file that is missing, torn, of a newer version or
// altered is set aside as state.json.bad and reported; the agent then starts with no memory, which
// costs reloads and nothing else. Every Save is atomic and durable before it returns.
//
// The package promises no secrecy beyond file modes, and decides nothing.
package state

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// Dir is the state directory. Names are relative to it and have at most one element before the last.
type Dir interface {
	// ReadFile fails with an error that is fs.ErrNotExist if there is no such file.
	ReadFile(name string) ([]byte, error)
	// WriteFile replaces a file atomically and durably, with mode 0600.
	WriteFile(name string, data []byte) error
	Rename(from, to string) error
	Remove(name string) error
	// List gives the names in a subdirectory; none if it does not exist.
	List(subdirectory string) ([]string, error)
}

const (
	file    = "state.json"
	aside   = "state.json.bad"
	blobs   = "blobs"
	version = 2
)

// NoFile is what Load says of a first start.
const NoFile = "there is no " + file

// State is everything that is remembered.
type State struct {
	plan.Memory
	Units map[string]unitplan.Loaded
	// LastGood is what the ControllerConfig last asked for, without content.
	LastGood         []Remembered
	ControllerConfig plan.ControllerConfig
	// Projection is what the ControllerConfig itself last asked for (plan.Desired.Projection).
	Projection plan.Digest
	// Override is what is remembered of the local override.
	Override OverrideState
}

// OverrideState remembers which Applied was seen, and what the ControllerConfig asked for then.
type OverrideState struct {
	ID   string      `json:"id"`
	Base plan.Digest `json:"base,omitzero"`
	// Overtaken is set once the ControllerConfig asked for something else than Base.
	Overtaken bool `json:"overtaken,omitempty"`
	// CarriedOut is set once a reconcile carried out what was applied: from then on it confirms nothing more.
	CarriedOut bool `json:"carriedOut,omitempty"`
}

// Remembered is one file of the last good version; its bytes are the blob of that digest.
type Remembered struct {
	plan.Key
	Digest plan.Digest `json:"digest"`
}

// Store reads and writes State.
type Store struct {
	dir  Dir
	last []byte
}

// Open uses dir, which must exist and belong to us alone.
func Open(dir Dir) *Store { return &Store{dir: dir} }

type document struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Body    json.RawMessage `json:"body"`
}

type body struct {
	ControllerConfig plan.ControllerConfig      `json:"object,omitzero"`
	LastGood         []Remembered               `json:"lastGood,omitempty"`
	Owned            []owned                    `json:"owned,omitempty"`
	Units            map[string]unitplan.Loaded `json:"units,omitempty"`
	Holds            []hold                     `json:"holds,omitempty"`

	Projection plan.Digest   `json:"projection,omitzero"`
	Override   OverrideState `json:"operator,omitzero"`
}

// hold is one entry of plan.Memory.Holds; without a certificate it is about the whole file.
type hold struct {
	Path string      `json:"path"`
	Cert plan.Digest `json:"cert,omitzero"`
	plan.Hold
}

type owned struct {
	Path string `json:"path"`
	plan.Claim
}

// Load reads the state. When nothing can be remembered it returns an empty state and says why in
// lost; err is set only when the directory itself cannot be read.
func (s *Store) Load() (st State, lost string, err error) {
	st, lost, err = s.Peek()
	if lost == "" || lost == NoFile || err != nil {
		return st, lost, err
	}
	if err := s.dir.Rename(file, aside); err != nil {
		return State{}, "", fmt.Errorf("setting unreadable state aside: %v", err)
	}
	return State{}, lost + "; kept as " + aside, nil
}

// Peek is Load without setting anything aside.
func (s *Store) Peek() (st State, lost string, err error) {
	data, err := s.dir.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return State{}, NoFile, nil
	case err != nil:
		return State{}, "", fmt.Errorf("reading state: %v", err)
	}
	if st, err = decode(data); err != nil {
		return State{}, file + ": " + err.Error(), nil
	}
	s.last = data
	return st, "", nil
}

func decode(data []byte) (State, error) {
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return State{}, errors.New("not the JSON we wrote")
	}
	if d.Version != version {
		return State{}, fmt.Errorf("version %d, want %d", d.Version, version)
	}
	if sum(d.Body) != d.SHA256 {
		return State{}, errors.New("checksum does not match")
	}
	var b body
	if err := json.Unmarshal(d.Body, &b); err != nil {
		return State{}, errors.New("body is not what we wrote")
	}
	st := State{ControllerConfig: b.ControllerConfig, LastGood: b.LastGood, Projection: b.Projection, Override: b.Override,
		Memory: plan.Memory{Owned: make(map[string]plan.Claim, len(b.Owned))}, Units: b.Units}
	for _, o := range b.Owned {
		st.Owned[o.Path] = o.Claim
	}
	for _, h := range b.Holds {
		if st.Holds == nil {
			st.Holds = make(map[plan.HoldKey]plan.Hold, len(b.Holds))
		}
		st.Holds[plan.HoldKey{Path: h.Path, Cert: pki.Fingerprint(h.Cert)}] = h.Hold
	}
	return st, nil
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Save makes st durable. Saving what is already there writes nothing.
func (s *Store) Save(st State) error {
	data, err := encode(st)
	if err != nil {
		return fmt.Errorf("encoding state: %v", err)
	}
	if slices.Equal(data, s.last) {
		return nil
	}
	if err := s.dir.WriteFile(file, data); err != nil {
		return fmt.Errorf("saving state: %v", err)
	}
	s.last = data
	return nil
}

func encode(st State) ([]byte, error) {
	b := body{ControllerConfig: st.ControllerConfig, LastGood: st.LastGood, Units: st.Units, Projection: st.Projection,
		Override: st.Override}
	for k, c := range st.Owned {
		b.Owned = append(b.Owned, owned{k, c})
	}
	slices.SortFunc(b.Owned, func(x, y owned) int { return strings.Compare(x.Path, y.Path) })
	for k, h := range st.Holds {
		b.Holds = append(b.Holds, hold{k.Path, plan.Digest(k.Cert), h})
	}
	slices.SortFunc(b.Holds, func(x, y hold) int {
		return cmp.Or(strings.Compare(x.Path, y.Path), bytes.Compare(x.Cert[:], y.Cert[:]))
	})
	raw, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	return json.Marshal(document{Version: version, SHA256: sum(raw), Body: raw})
}

// Keep makes the contents of entries durable as blobs and then names them in st as the last good
// version. Blobs that nothing names any more are removed afterwards. If the contents are those of the
// last good version nothing is written, even for a new version of the ControllerConfig. An entry whose digest is not
// that of its content is an error: it could not be read back.
func (s *Store) Keep(st *State, config plan.ControllerConfig, entries []plan.Entry) error {
	good := make([]Remembered, len(entries))
	for i, e := range entries {
		good[i] = Remembered{e.Key, e.Digest}
	}
	if slices.Equal(good, st.LastGood) {
		return nil
	}
	have, err := s.blobs()
	if err != nil {
		return err
	}
	named := make(map[string]bool, len(entries))
	for _, e := range entries {
		name := e.Digest.String()
		if !have[name] && !named[name] {
			if plan.DigestOf(e.Data) != e.Digest {
				return fmt.Errorf("keeping the last good content of %s: its digest is another", e.Key)
			}
			if err := s.dir.WriteFile(blobs+"/"+name, e.Data); err != nil {
				return fmt.Errorf("keeping the last good content: %v", err)
			}
		}
		named[name] = true
	}
	st.LastGood, st.ControllerConfig = good, config
	if err := s.Save(*st); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !named[name] {
			if err := s.dir.Remove(blobs + "/" + name); err != nil {
				return fmt.Errorf("removing an old blob: %v", err)
			}
		}
	}
	return nil
}

func (s *Store) blobs() (map[string]bool, error) {
	names, err := s.dir.List(blobs)
	if err != nil {
		return nil, fmt.Errorf("listing blobs: %v", err)
	}
	have := make(map[string]bool, len(names))
	for _, n := range names {
		have[n] = true
	}
	return have, nil
}

// Content gives the bytes of a remembered file, checked against its digest.
func (s *Store) Content(r Remembered) ([]byte, error) {
	data, err := s.dir.ReadFile(blobs + "/" + r.Digest.String())
	if err != nil {
		return nil, fmt.Errorf("reading the last good content of %s: %v", r.Key, err)
	}
	if plan.DigestOf(data) != r.Digest {
		return nil, fmt.Errorf("the last good content of %s is damaged", r.Key)
	}
	return data, nil
}
