// SPDX-License-Identifier: Apache-2.0

// Package merge decides which bytes one NodeBundle publishes: it joins what the sources say now with what
// is published, and takes away what may go. It is pure: the caller reads, brings the clock, and writes.
//
// It promises that the result is the same for the same input and for any order of the sources; that what it
// changes is valid for a node, by the node's own rules (agent/plan, agent/pki); that no certificate goes
// because a source is missing, empty or refused; and that none goes without the permission that the removal
// policy asks for. What cannot be done leaves the published bytes as they are and says why.
//
// It does not know who owns the field of the ControllerConfig, nor which nodes have what: Input.MayGo says that.
package merge

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

// Input is everything that Merge looks at.
type Input struct {
	// Key is the field, and in a list the registry as a node names its directory.
	Key     plan.Key
	Sources []Source
	// Published is what the ControllerConfig has for Key now: the last good bytes. It is empty if there is nothing.
	Published []byte
	// Known are the certificates of the status as it was left, which say since when one is kept.
	Known   []v1alpha1.Certificate
	Removal v1alpha1.Removal
	// Replaced are those that may go although every certificate was replaced at once.
	Replaced []pki.Fingerprint
	// Force are those that may go although the policy keeps them.
	Force Force
	// MayGo says whether every node has what would be left, all that the sources have, and if not, who lacks what. It
	// is asked under the policy WhenConverged only. While it is nil, nothing goes under that policy.
	MayGo func(left []pki.Fingerprint) (bool, string)
	// Now judges holds and expiry. Expiry only warns.
	Now time.Time
}

// Result is what to do, and what to tell.
type Result struct {
	// Data is what shall be published. It is Published itself if that shall stay, and empty if there is nothing to
	// publish.
	Data         []byte
	Certificates []v1alpha1.Certificate
	// Remember is set if Certificates say of one for the first time why it is kept. The caller stores them
	// before it writes Data: afterwards nobody could tell.
	Remember   bool
	Conditions []metav1.Condition
	// Events are what happens with this result: they are to be told once Data is written.
	Events []Event
	// Bypassed says of each certificate that goes although its policy would keep it, why.
	Bypassed []string
	// Next is when time alone changes the result, or zero.
	Next time.Time
}

// Event is one thing that happened. Reason is a word, Note a sentence.
type Event struct {
	Warning      bool
	Reason, Note string
}

// SpecOf gives the rules by which a node judges bytes for the key, or the reason for which no node takes any.
func SpecOf(key plan.Key) (plan.FileSpec, error) {
	spec := plan.FileSpec{Field: key.Field}
	if !slices.Contains(plan.Fields(), key.Field) || key.Field.FromConfigMap() || key.Field.Secret() {
		return spec, fmt.Errorf("the ControllerConfig has no field %q for certificates", key.Field)
	}
	if key.Field.List() {
		spec.Path = "/{name}"
	}
	_, err := spec.PathOf(key.Name)
	return spec, err
}

// Merge decides.
func Merge(in Input) Result {
	m := merging{in: in, published: pki.Read(in.Published).Certs, wanted: make(map[pki.Fingerprint]pki.Cert),
		known: make(map[string]v1alpha1.Certificate)}
	m.in.Now = in.Now.UTC().Truncate(time.Second) // as the status stores it
	for _, c := range in.Known {
		m.known[c.SHA256] = c
	}
	spec, err := SpecOf(in.Key)
	if err != nil {
		m.publish(metav1.ConditionFalse, Refused, err.Error())
		m.result.Data, m.result.Certificates = in.Published, in.Known
		return m.result
	}
	m.spec = spec
	m.read()
	m.new = m.added()
	m.replaced = m.replacedAtOnce()
	if !m.lost() {
		m.join()
	}
	m.tell()
	return m.result
}

// merging is the work on one input.
type merging struct {
	in        Input
	spec      plan.FileSpec
	published []pki.Cert
	// wanted are the certificates of all sources that can be used, new those that are not published yet.
	wanted   map[pki.Fingerprint]pki.Cert
	new      []pki.Cert
	known    map[string]v1alpha1.Certificate
	replaced map[pki.Fingerprint]bool
	problems []problem
	warnings []string
	kept     []kept
	result   Result
}

// added are the wanted certificates that are not published, by fingerprint.
func (m *merging) added() []pki.Cert {
	added, _ := pki.Diff(m.published, slices.Collect(maps.Values(m.wanted)))
	slices.SortFunc(added, func(a, b pki.Cert) int { return bytes.Compare(a.Fingerprint[:], b.Fingerprint[:]) })
	return added
}

// join takes away what may go and appends what is new: readers of a bundle see what they had before in its old order.
func (m *merging) join() {
	var out, gone []pki.Cert
	for _, c := range m.published {
		if _, ok := m.wanted[c.Fingerprint]; ok || m.keep(c.Fingerprint) {
			out = append(out, c)
		} else {
			gone = append(gone, c)
		}
	}
	out = append(out, m.new...)
	data, err := m.encode(out)
	switch {
	case err != nil:
		m.publish(metav1.ConditionFalse, Refused, "all sources together: "+err.Error()+"; what is published stays")
		m.result.Events, m.result.Bypassed = nil, nil
		m.result.Data, m.result.Certificates = m.in.Published, m.in.Known
		return
	case len(m.problems) > 0 && len(out) == 0:
		m.publish(metav1.ConditionFalse, NothingToPublish, "no source can be used, and nothing was published before")
	case len(m.problems) > 0:
		m.publish(metav1.ConditionTrue, LastGood, "what was published stays: "+m.problems[0].String())
	default:
		m.publish(metav1.ConditionTrue, v1alpha1.Published, fmt.Sprintf("%d certificates", len(out)))
	}
	m.result.Data = data
	m.changed("Added", m.new)
	m.changed("Removed", gone)
	for _, c := range out {
		m.remember(c)
	}
}

// encode is the one form of a bundle of these certificates, or what is published if there are none. An error is why
// no node would take it.
func (m *merging) encode(certs []pki.Cert) ([]byte, error) {
	if len(certs) == 0 {
		return m.in.Published, nil
	}
	var data []byte
	for _, c := range certs {
		data = append(data, c.PEM()...)
	}
	e, err := m.spec.Entry(m.in.Key.Name, data, m.in.Now)
	return e.Data, err
}

func (m *merging) remember(c pki.Cert) {
	at := v1alpha1.Certificate{SHA256: c.Fingerprint.String(), Subject: c.Subject, NotAfter: metav1.NewTime(c.NotAfter)}
	i := slices.IndexFunc(m.kept, func(k kept) bool { return k.fingerprint == c.Fingerprint })
	if i >= 0 {
		k := m.kept[i]
		at.KeptSince, at.Reason, at.Replaced = &metav1.Time{Time: k.since}, k.why, m.replaced[c.Fingerprint]
		old := m.known[at.SHA256]
		m.result.Remember = m.result.Remember || old.KeptSince == nil || old.Replaced != at.Replaced
	}
	m.result.Certificates = append(m.result.Certificates, at)
}

// lost decides when the ControllerConfig has nothing of what was published: it was deleted, or the field was. A node
// that finds no such field keeps its file, and one that finds less than there was does not. So nothing is published
// until the sources have all of it, or what is missing may go. A list is another matter: an entry that is not
// there, where there are others, is taken for a removal.
func (m *merging) lost() bool {
	if len(m.in.Published) > 0 || m.in.Key.Field.List() {
		return false
	}
	missing := 0
	for _, c := range m.in.Known {
		for _, fp := range fingerprints(c.SHA256) {
			if _, ok := m.wanted[fp]; !ok && m.keep(fp) {
				missing++
			}
		}
	}
	if missing == 0 {
		return false
	}
	m.publish(metav1.ConditionFalse, Lost, fmt.Sprintf("the ControllerConfig no longer has the field, and no source "+
		"has %d of the certificates that it had; nothing is published, so that nodes keep their file", missing))
	m.result.Certificates = m.in.Known
	return true
}

func (m *merging) next(t time.Time) {
	if m.result.Next.IsZero() || t.Before(m.result.Next) {
		m.result.Next = t
	}
}

func (m *merging) event(warning bool, reason, note string) {
	m.result.Events = append(m.result.Events, Event{Warning: warning, Reason: reason, Note: note})
}

func (m *merging) changed(reason string, certs []pki.Cert) {
	if len(certs) == 0 {
		return
	}
	names := make([]string, len(certs))
	for i, c := range certs {
		names[i] = name(c.Fingerprint)
	}
	m.event(false, reason, list(names))
}

// name is how a certificate is called in a sentence.
func name(fp pki.Fingerprint) string { return "sha256:" + fp.String() }

// list is the first of many, and how many more there are.
func list(all []string) string {
	const most = 3
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
