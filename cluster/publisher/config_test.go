// SPDX-License-Identifier: Apache-2.0

package publisher

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher/merge"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/objects"
)

var a, b = objects.CA("a"), objects.CA("b")

// says is a turn whose sources come to data.
func says(name string, data []byte) *turn {
	return &turn{key: plan.Key{Field: plan.ImageRegistryBundleData, Name: name}, result: merge.Result{Data: data}}
}

func files(c config) string {
	var all []string
	for _, e := range c.entries {
		all = append(all, fmt.Sprintf("%s=%s", e.file, map[string]string{string(a): "a", string(b): "b"}[string(e.data)]))
	}
	return strings.Join(all, " ")
}

func TestAListKeepsWhatNobodySpeaksForAndItsOrder(t *testing.T) {
	c := config{field: plan.ImageRegistryBundleData, entries: []entry{{"z..5000", "z:5000", a}, {"m", "m", a}}}
	next := c.with([]*turn{says("q:443", a), says("b", b), says("z:5000", b), says("m", nil), says("empty", nil)})
	if got, want := files(next), "z..5000=b m=a b=b q..443=a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := files(c), "z..5000=a m=a"; got != want {
		t.Errorf("what was there became %s", got)
	}
}

func TestWhatIsAppliedIsWhatTheNodeReads(t *testing.T) {
	for _, c := range []config{
		{field: plan.RootCAData, entries: []entry{{data: a}}},
		{field: plan.ImageRegistryBundleData, entries: []entry{{"z..5000", "z:5000", a}, {"m", "m", b}}},
	} {
		patch := c.patch("x", "7")
		got, err := configOf(patch, c.field)
		if err != nil || !got.equal(c) || patch.GetResourceVersion() != "7" {
			t.Errorf("%s: got %s: %v", c.field, files(got), err)
		}
		if err := c.refusal(patch, time.Now()); err != nil {
			t.Errorf("%s: a node refuses it: %v", c.field, err)
		}
	}
}

func TestWhatANodeWouldRefuseIsNotApplied(t *testing.T) {
	many := config{field: plan.ImageRegistryBundleData}
	for i := range 1001 {
		name := fmt.Sprintf("r%d", i)
		many.entries = append(many.entries, entry{name, name, a})
	}
	for want, c := range map[string]config{
		"has more than 1000 entries": many,
		"holds no certificate":       {field: plan.RootCAData, entries: []entry{{data: []byte("x\n")}}},
		"port is not a number":       {field: plan.ImageRegistryBundleData, entries: []entry{{"r..x", "r:x", a}}},
	} {
		if err := c.refusal(c.patch("x", ""), time.Now()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestAFieldThatCannotBeReadIsAnError(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"kind": "ControllerConfig",
		"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"rootCAData": "%%"}}}
	if _, err := configOf(u, plan.RootCAData); err == nil {
		t.Error("it was taken for an empty one, over which something may be written")
	}
}

func TestOwnedIsWhatOurManagerApplied(t *testing.T) {
	for manager, want := range map[string]bool{"node-cert-publisher/rootCAData": true, "somebody": false} {
		u := &unstructured.Unstructured{}
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationApply,
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:rootCAData":{}}}`)}})
		if got := owned(u, plan.RootCAData); got != want {
			t.Errorf("%s: %t", manager, got)
		}
		if owned(u, plan.CloudProviderCAData) {
			t.Errorf("%s owns a field that it does not have", manager)
		}
	}
}

func TestAConflictNamesTheManager(t *testing.T) {
	err := apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict,
		Message: `conflict with "somebody"`, Field: ".spec.rootCAData"}}, "x")
	if got := conflict(err); got != `conflict with "somebody"` {
		t.Errorf("got %q", got)
	}
	stale := apierrors.NewConflict(controllerConfigs.GroupResource(), "x", errors.New("the object has been modified"))
	if got := conflict(stale); got != "" {
		t.Errorf("an older version of the object is taken for another manager: %q", got)
	}
}

func TestTheOldestNodeBundlePublishes(t *testing.T) {
	bundle := func(name, registry string, minute int) v1alpha1.NodeBundle {
		var b v1alpha1.NodeBundle
		text := fmt.Sprintf(`{"metadata": {"name": %q, "creationTimestamp": "2026-11-22T12:%02d:00Z"},
			"spec": {"field": "imageRegistryBundleData", "registry": %q}}`, name, minute, registry)
		if err := json.Unmarshal([]byte(text), &b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	going := bundle("going", "r:443", 0)
	going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	first, late := claims([]v1alpha1.NodeBundle{bundle("young", "r..443", 2), bundle("b", "r:443", 1),
		bundle("a", "r:443", 1), bundle("other", "s", 3), going})
	brief := func(turns []*turn) (out string) {
		for _, t := range turns {
			out += t.bundle.Name + " "
		}
		return out
	}
	if got, want := brief(first)+"| "+brief(late), "a other | b young "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	said := late[0].result.Conditions[0]
	if said.Reason != "Duplicate" || !strings.Contains(said.Message, "NodeBundle a ") {
		t.Errorf("the other says %+v", said)
	}
}
