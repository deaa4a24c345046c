// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

// registryNames are those that lists name.
var registryNames = []string{"r1", "r2:5000", "r3", "r4"}

// cluster is what is published, and how far the agent has read it.
type cluster struct {
	object, configMap *version // the newest; nil: there is none yet
	published         int

	// What the agent of this life was given.
	parts [2]part
	// serves is the authority that verifies the API server now; away has nobody answer proofs.
	serves int
	away   bool
}

// part is one of the two sources, as agent/source keeps it.
type part struct {
	projector watch.Projector
	desired   *plan.Desired
	of        *version
}

// version is one version of an object. It never changes.
type version struct {
	number  int
	fields  map[plan.Field]field
	lists   map[plan.Field][]entry
	revoked []int
	paused  bool
}

// field is what is published in one place: authorities, nothing, or something that cannot be used.
type field struct {
	holds []int
	bad   bool
}

// entry is one registry of a list. An odd one has a name that cannot be used.
type entry struct {
	name string
	odd  bool
	field
}

func newCluster() cluster { return cluster{} }

// connect is a new watch: nothing has been read.
func (c *cluster) connect() { c.parts = [2]part{} }

func (f field) data() []byte {
	if f.bad {
		return []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	}
	return bundle(f.holds)
}

func (f field) String() string {
	if f.bad {
		return "bad"
	}
	return "[" + letters(f.holds) + "]"
}

// String is the version as a person reads it.
func (v *version) String() string {
	if v == nil {
		return "nothing"
	}
	var b strings.Builder
	for _, id := range plan.Fields() {
		if f, ok := v.fields[id]; ok {
			fmt.Fprintf(&b, " %s=%v", id, f)
		}
		if l, ok := v.lists[id]; ok {
			fmt.Fprintf(&b, " %s={", id)
			for i, e := range l {
				fmt.Fprintf(&b, "%.*s%s%v", min(i, 1), " ", e.name, e.field)
				if e.odd {
					b.WriteString("(odd name)")
				}
			}
			b.WriteString("}")
		}
	}
	if len(v.revoked) > 0 {
		fmt.Fprintf(&b, " revoke=%s", letters(v.revoked))
	}
	if v.paused {
		b.WriteString(" paused")
	}
	return strings.TrimSpace(b.String())
}

// watched is the version as package watch decodes it.
func (v *version) watched() watch.Object {
	o := watch.Object{Name: "object", UID: "uid", ResourceVersion: fmt.Sprint(v.number),
		Fields: make(map[plan.Field]watch.Field), Annotations: make(map[string]string)}
	for id, f := range v.fields {
		o.Fields[id] = watch.Field{Data: f.data()}
	}
	for id, l := range v.lists {
		f := watch.Field{}
		for _, e := range l {
			name := strings.ReplaceAll(e.name, ":", "..")
			if e.odd {
				name = "../" + name
			}
			f.Entries = append(f.Entries, watch.ListEntry{File: name, Data: e.data()})
		}
		o.Fields[id] = f
	}
	var revoked []string
	for _, i := range v.revoked {
		revoked = append(revoked, "sha256:"+authorities[i].cert.Fingerprint.String())
	}
	if len(revoked) > 0 {
		o.Annotations[watch.RevokeAnnotation] = strings.Join(revoked, ",")
	}
	if v.paused {
		o.Annotations[watch.PausedAnnotation] = "freeze"
	}
	return o
}

// draft is a copy of a version that may be changed.
func draft(v *version, number int) *version {
	n := &version{number: number, fields: make(map[plan.Field]field), lists: make(map[plan.Field][]entry)}
	if v != nil {
		n.fields, n.revoked, n.paused = maps.Clone(v.fields), v.revoked, v.paused
		for id, l := range v.lists {
			n.lists[id] = slices.Clone(l)
		}
	}
	return n
}

func someAuthorities(r *rand.Rand, most int) []int {
	return r.Perm(len(authorities))[:1+r.IntN(most)]
}

// changeField gives another content for a field.
func changeField(r *rand.Rand, f field) field {
	holds := slices.Clone(f.holds)
	switch n := r.IntN(100); {
	case n < 6:
		return field{bad: true}
	case n < 14:
		return field{}
	case n < 30 || len(holds) == 0:
		return field{holds: someAuthorities(r, 3)}
	case n < 60:
		for _, i := range r.Perm(len(authorities)) {
			if !slices.Contains(holds, i) {
				return field{holds: append(holds, i)}
			}
		}
	case n < 90 && len(holds) > 1:
		i := r.IntN(len(holds))
		return field{holds: slices.Delete(holds, i, i+1)}
	}
	r.Shuffle(len(holds), func(i, j int) { holds[i], holds[j] = holds[j], holds[i] })
	return field{holds: holds}
}

// changeList gives another list.
func changeList(r *rand.Rand, l []entry) []entry {
	l = slices.Clone(l)
	at := 0
	if len(l) > 0 {
		at = r.IntN(len(l))
	}
	switch n := r.IntN(100); {
	case n < 40 || len(l) == 0:
		name := pick(r, registryNames...)
		if !slices.ContainsFunc(l, func(e entry) bool { return e.name == name }) {
			l = append(l, entry{name: name, field: field{holds: someAuthorities(r, 2)}})
		}
	case n < 65:
		l = slices.Delete(l, at, at+1)
	case n < 90:
		l[at].field = changeField(r, l[at].field)
	case n < 95:
		l[at].odd = !l[at].odd
	default:
		return nil
	}
	return l
}

// publish makes the next version of the ControllerConfig.
func (w *env) publish(r *rand.Rand) {
	c := &w.cluster
	c.published++
	n := draft(c.object, c.published)
	all := c.object == nil || r.IntN(6) == 0
	for _, id := range []plan.Field{plan.KubeAPIServerServingCAData, plan.RootCAData, plan.AdditionalTrustBundle} {
		switch {
		case !all && r.IntN(3) > 0:
		case r.IntN(20) == 0:
			delete(n.fields, id)
		default:
			n.fields[id] = changeField(r, n.fields[id])
		}
	}
	for _, id := range []plan.Field{plan.ImageRegistryBundleData, plan.ImageRegistryBundleUserData} {
		if all || r.IntN(2) == 0 {
			n.lists[id] = changeList(r, n.lists[id])
		}
	}
	if r.IntN(8) == 0 {
		n.revoked = nil
		if r.IntN(2) == 0 {
			n.revoked = someAuthorities(r, 2)
		}
	}
	if r.IntN(12) == 0 {
		n.paused = !n.paused
	}
	c.object = n
	w.logf("the ControllerConfig is now %s", n)
}

// publishConfigMap makes the next version of the second source.
func (w *env) publishConfigMap(r *rand.Rand) {
	c := &w.cluster
	c.published++
	n := draft(c.configMap, c.published)
	n.fields[plan.KubeconfigCAData] = changeField(r, n.fields[plan.KubeconfigCAData])
	c.configMap = n
	w.logf("the ConfigMap is now %s", n)
}

// read has the agent read one source, if there is anything new in it.
func (w *env) read(which int) {
	c := &w.cluster
	v := []*version{c.object, c.configMap}[which]
	p := &c.parts[which]
	if !w.agent.running || w.violation != nil || v == nil || p.of == v || which == 1 && !w.setting.ConfigMap {
		return
	}
	d := p.projector.Project(v.watched(), w.policy.Files, w.clock.wall())
	d.Verified = true
	p.desired, p.of = &d, v
	all := c.desired()
	w.logf("the agent reads the %s", []string{"object", "ConfigMap"}[which])
	w.model.delivers(w, &all)
	w.give(desired.Reading{State: "following", Desired: &all})
}

// give hands a reading over.
func (w *env) give(r desired.Reading) {
	if w.cluster.parts[0].desired != nil {
		r.Time = desired.ServerTime{Date: epoch.Add(w.clock.truth).Truncate(time.Second), Seen: w.clock.now()}
	}
	w.agent.readings <- r
	w.turn()
}

// desired is what both sources ask for, as far as they were read.
func (c *cluster) desired() plan.Desired {
	d := plan.Desired{Verified: true, Partial: true}
	if p := c.parts[0]; p.desired != nil {
		d = *p.desired
	}
	if p := c.parts[1]; p.desired != nil {
		d = d.With(*p.desired)
	}
	return d
}

// prove answers whether the API server is verified with some certificates.
func (w *env) prove(c *call) {
	var with []int
	for _, x := range c.certs {
		with = append(with, indexOf(x.Fingerprint))
	}
	switch {
	case w.cluster.away:
		c.err = fmt.Errorf("nobody answers")
	case !slices.Contains(with, w.cluster.serves):
		c.why = "unknown authority"
	}
	w.logf("  the agent verifies the API server with %s: %q, %v", letters(with), c.why, c.err)
	w.model.proved(with, c)
	w.agent.answer(c)
}
