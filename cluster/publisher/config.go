// SPDX-License-Identifier: Apache-2.0

package publisher

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher/merge"
)

var controllerConfigs = v1alpha1.GroupVersion.WithResource("controllerconfigs")

// config is one field of the ControllerConfig, as it is or as it shall be.
type config struct {
	field plan.Field
	// entries are in order; a field that is no list has at most one, without a name.
	entries []entry
}

// entry is the content for one key. File is what the list calls the registry, and Name what a node makes of it.
type entry struct {
	file, name string
	data       []byte
}

// configOf reads a field from the object, by the agent's own decoder. An object that does not exist is empty.
func configOf(u *unstructured.Unstructured, field plan.Field) (config, error) {
	c := config{field: field}
	if u.GetName() == "" {
		return c, nil
	}
	o, err := decoded(u)
	if err != nil {
		return c, err
	}
	f := o.Fields[field]
	switch {
	case f.Reason != "":
		return c, fmt.Errorf("%s of the ControllerConfig %s", field, f.Reason)
	case !field.List() && len(f.Data) > 0:
		c.entries = []entry{{data: f.Data}}
	}
	for _, e := range f.Entries {
		if e.Reason != "" {
			return c, fmt.Errorf("%s of the ControllerConfig: an entry %s", field, e.Reason)
		}
		c.entries = append(c.entries, entry{file: e.File, name: watch.RegistryName(e.File), data: e.Data})
	}
	return c, nil
}

func decoded(u *unstructured.Unstructured) (watch.Object, error) {
	b, err := json.Marshal(u)
	if err != nil {
		return watch.Object{}, err
	}
	return watch.DecodeObject(bytes.NewReader(b))
}

// of is what is published for a registry, or for the whole field if it is no list.
func (c config) of(name string) []byte {
	for _, e := range c.entries {
		if e.name == name {
			return e.data
		}
	}
	return nil
}

// with is c with other content for some keys. What nobody speaks for stays, and nothing becomes empty. Entries keep
// their order, and new ones follow by name.
func (c config) with(turns []*turn) config {
	next := config{field: c.field, entries: slices.Clone(c.entries)}
	var added []entry
	for _, t := range turns {
		if len(t.result.Data) == 0 {
			continue
		}
		i := slices.IndexFunc(next.entries, func(e entry) bool { return e.name == t.key.Name })
		if i >= 0 {
			next.entries[i].data = t.result.Data
		} else {
			added = append(added, entry{file: strings.ReplaceAll(t.key.Name, ":", ".."), name: t.key.Name, data: t.result.Data})
		}
	}
	slices.SortFunc(added, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	next.entries = append(next.entries, added...)
	return next
}

func (c config) equal(other config) bool {
	return slices.EqualFunc(c.entries, other.entries, func(a, b entry) bool {
		return a.file == b.file && bytes.Equal(a.data, b.data)
	})
}

// patch is what is to be applied. The version that was read keeps a publisher that no longer leads from writing over
// what its successor has written.
func (c config) patch(name, resourceVersion string) *unstructured.Unstructured {
	var value any
	for _, e := range c.entries {
		value = base64.StdEncoding.EncodeToString(e.data)
	}
	if c.field.List() {
		list := make([]any, len(c.entries))
		for i, e := range c.entries {
			list[i] = map[string]any{"file": e.file, "data": base64.StdEncoding.EncodeToString(e.data)}
		}
		value = list
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{string(c.field): value}}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ControllerConfig"))
	u.SetName(name)
	u.SetResourceVersion(resourceVersion)
	return u
}

// refusal is why a node would not take what is to be applied, by the code that reads it there; or nil.
func (c config) refusal(patch *unstructured.Unstructured, now time.Time) error {
	o, err := decoded(patch)
	if err != nil {
		return err
	}
	spec, err := merge.SpecOf(plan.Key{Field: c.field, Name: map[bool]string{true: "any"}[c.field.List()]})
	if err != nil {
		return err
	}
	d := new(watch.Projector).Project(o, []plan.FileSpec{spec}, now)
	if len(d.Refused) > 0 {
		return fmt.Errorf("%s %s", d.Refused[0].Key, d.Refused[0].Reason)
	}
	return nil
}

// fieldManager is the field manager that owns a field. One for all of them would have to apply all at once: a conflict
// about one field would hold up the others, and a field left out would be removed.
func fieldManager(f plan.Field) string { return name + "/" + string(f) }

// owned reports whether the publisher owns the field already.
func owned(u *unstructured.Unstructured, f plan.Field) bool {
	return slices.ContainsFunc(u.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == fieldManager(f) && m.Operation == metav1.ManagedFieldsOperationApply && m.FieldsV1 != nil &&
			bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(`"f:`+string(f)+`"`))
	})
}

// conflict says which other managers own the field, or nothing if err does not.
func conflict(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsConflict(err) || status.Status().Details == nil {
		return ""
	}
	var all []string
	for _, c := range status.Status().Details.Causes {
		if c.Type == metav1.CauseTypeFieldManagerConflict {
			all = append(all, printable.Text(c.Message))
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "; ")
}
