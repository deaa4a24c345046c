// SPDX-License-Identifier: Apache-2.0

package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/fleet"
)

// nodes is a Fleet that nobody has to watch.
type nodes []fleet.Node

func (n nodes) Judge(q fleet.Question) fleet.Answer { return q.Judge(n) }

// has is a node that follows a version of the ControllerConfig and has certificates in rootCAData.
func has(name, version string, bundles ...[]byte) fleet.Node {
	files := map[plan.Key]fleet.File{{Field: plan.RootCAData}: {Certificates: fleet.NewSet(fingerprints(bundles...))}}
	return fleet.Node{Name: name, Report: &fleet.Report{Disk: &fleet.Disk{Files: files},
		Synced: plan.ControllerConfig{ResourceVersion: version}}}
}

func fingerprints(bundles ...[]byte) (all []pki.Fingerprint) {
	for _, b := range bundles {
		for _, c := range pki.Read(b).Certs {
			all = append(all, c.Fingerprint)
		}
	}
	return all
}

// bench is a publisher on an API server in memory.
type bench struct {
	*publisher
	t      *testing.T
	events chan string
	// lost is set if answers to writes of the ControllerConfig do not arrive.
	lost bool
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{t: t}
	answer := func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		err := c.Apply(ctx, o, opts...)
		if b.lost {
			return errors.New("connection reset")
		}
		return err
	}
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{Apply: answer}).WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.NodeBundle{}).
		WithReturnManagedFields().Build()
	recorder := events.NewFakeRecorder(10_000)
	b.events = recorder.Events
	b.publisher = &publisher{options: Options{ControllerConfig: "x"}, client: c, events: recorder, watches: newWatches(nil),
		reader: reader{client: c, kinds: meta.NewDefaultRESTMapper(nil)}, now: metav1.Now}
	return b
}

func nodeBundle(name string, sources ...v1alpha1.Source) *v1alpha1.NodeBundle {
	return &v1alpha1.NodeBundle{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec: v1alpha1.NodeBundleSpec{Field: "rootCAData", Sources: sources}}
}

func inline(data []byte) v1alpha1.Source { return v1alpha1.Source{Inline: string(data)} }

func (b *bench) reconcile() reconcile.Result {
	b.t.Helper()
	r, err := b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "rootCAData"}})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// told are the reasons of the events since the last call.
func (b *bench) told() (out string) {
	for {
		select {
		case e := <-b.events:
			out += strings.Fields(e)[1] + " "
		default:
			return out
		}
	}
}

func (b *bench) bundle(name string) *v1alpha1.NodeBundle {
	b.t.Helper()
	var o v1alpha1.NodeBundle
	if err := b.client.Get(b.t.Context(), client.ObjectKey{Name: name}, &o); err != nil {
		b.t.Fatal(err)
	}
	return &o
}

// state is what is published, and what the NodeBundle says.
func (b *bench) state(name string) string {
	b.t.Helper()
	u, err := b.controllerConfig(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := configOf(u, plan.RootCAData)
	if err != nil {
		b.t.Fatal(err)
	}
	out := ""
	for _, x := range pki.Read(c.of("")).Certs {
		out += strings.TrimPrefix(x.Subject, "CN=") + " "
	}
	s := b.bundle(name).Status
	for _, kind := range []string{v1alpha1.Published, v1alpha1.SourcesReady, v1alpha1.Converged} {
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
			out += c.Reason + " "
		}
	}
	return out + fmt.Sprintf("%d/%d %s", s.Counts.Held, s.Counts.Certificates, s.Counts.Nodes)
}

func (b *bench) expect(name, want string) {
	b.t.Helper()
	if got := b.state(name); got != want {
		b.t.Errorf("got  %s\nwant %s", got, want)
	}
}

func (b *bench) change(name string, change func(*v1alpha1.NodeBundle)) {
	b.t.Helper()
	o := b.bundle(name)
	change(o)
	if err := b.client.Update(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
}

func TestTheControllerConfigIsMadeAndThenLeftAlone(t *testing.T) {
	p := newBench(t, nodeBundle("n", inline(a)))
	p.options.Fleet = nodes{has("x", "1", a), has("y", "1", b)}
	p.reconcile()
	p.expect("n", "a Published Ready Converged 0/1 1/2")
	if got := p.told(); got != "Added " {
		t.Errorf("events: %s", got)
	}
	before, _ := p.controllerConfig(t.Context())
	p.reconcile()
	after, _ := p.controllerConfig(t.Context())
	if before.GetResourceVersion() != after.GetResourceVersion() || p.told() != "" {
		t.Errorf("written again, from %s to %s", before.GetResourceVersion(), after.GetResourceVersion())
	}
}

func TestNothingIsForcedOnAnotherManager(t *testing.T) {
	p := newBench(t, nodeBundle("n", inline(a)))
	theirs := config{field: plan.RootCAData, entries: []entry{{data: b}}}.patch("x", "")
	if err := p.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(theirs), client.FieldOwner("them")); err != nil {
		t.Fatal(err)
	}
	p.reconcile()
	p.expect("n", "b Conflict Ready ReplacedAtOnce 0/0 ")
	if c := meta.FindStatusCondition(p.bundle("n").Status.Conditions, v1alpha1.Published); !strings.Contains(c.Message, `"them"`) {
		t.Errorf("the condition says %s", c.Message)
	}
	if got := p.told(); got != "Conflict " {
		t.Errorf("events: %s", got)
	}
	if known := p.bundle("n").Status.Certificates; len(known) > 0 {
		t.Errorf("of what the other one published the status remembers %v", known)
	}
	nothing := client.ApplyConfigurationFromUnstructured(config{field: plan.CloudProviderCAData}.patch("x", ""))
	if err := p.client.Apply(t.Context(), nothing, client.FieldOwner("them")); err != nil {
		t.Fatal(err)
	}
	p.reconcile()
	if got := p.bundle("n").Status.Certificates; len(got) != 1 {
		t.Errorf("once the other one has let go, %v are published", got)
	}
}

func TestASourceThatIsAwayIsToldOnce(t *testing.T) {
	from := v1alpha1.Source{ConfigMap: &v1alpha1.KeyOf{Namespace: "s", Name: "c", Key: "ca.crt"}}
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "s", Name: "c"},
		Data: map[string]string{"ca.crt": string(a)}}
	p := newBench(t, nodeBundle("n", from), source)
	p.reconcile()
	if err := p.client.Delete(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	p.told()
	p.reconcile()
	p.reconcile()
	p.expect("n", "a LastGood SourceMissing SourcesNotReady 1/1 ")
	if got := p.told(); got != "SourceMissing " {
		t.Errorf("events: %s", got)
	}
	trust := v1alpha1.Source{ClusterTrustBundle: &v1alpha1.Named{Name: "t"}}
	p.change("n", func(o *v1alpha1.NodeBundle) { o.Spec.Sources = []v1alpha1.Source{inline(a), trust} })
	if r := p.reconcile(); r.RequeueAfter != unreadableAgain {
		t.Errorf("looked at again after %v", r.RequeueAfter)
	}
	p.expect("n", "a LastGood SourceUnreadable Converged 0/1 ")
}

func TestACertificateGoesWhenEveryNodeWasAskedAndHasWhatRemains(t *testing.T) {
	p := newBench(t, nodeBundle("n", inline(slices.Concat(a, b))))
	p.options.Fleet = nodes{has("x", "1", a, b), has("y", "1", a, b)}
	p.reconcile()
	p.change("n", func(o *v1alpha1.NodeBundle) { o.Spec.Sources[0] = inline(b) })
	if r := p.reconcile(); r.RequeueAfter != blockedAgain {
		t.Errorf("looked at again after %v", r.RequeueAfter)
	}
	p.expect("n", "b a Published Ready RemovalBlocked 1/2 2/2")
	asked := p.bundle("n").Status.Asked.ResourceVersion
	for _, step := range []struct {
		nodes nodes
		want  string
	}{
		{nodes{has("x", "1", b), has("y", "1", b)}, "x has not reported since it was asked, y has not reported since it was asked"},
		{nodes{has("x", asked, a, b), has("y", "1", b)}, "y has not reported since it was asked"},
		{nodes{has("x", asked, b), has("y", asked, a)}, "y lacks sha256:" + fingerprints(b)[0].String()[:16]},
		{nodes{has("x", asked, b), {Name: "y"}}, "y has never reported"},
	} {
		p.options.Fleet = step.nodes
		p.reconcile()
		var blocking []string
		for _, m := range p.bundle("n").Status.Blocking {
			blocking = append(blocking, m.Node+" "+m.Reason)
		}
		if got := strings.Join(blocking, ", "); got != step.want {
			t.Errorf("blocking are %s, want %s", got, step.want)
		}
		if got := p.bundle("n").Status.Counts.Held; got != 1 {
			t.Errorf("%s: %d are kept", step.want, got)
		}
	}
	p.options.Fleet = nodes{has("x", asked, b), has("y", asked, b)}
	p.reconcile()
	p.expect("n", "b Published Ready Converged 0/1 2/2")
	if s := p.bundle("n").Status; s.Asked != nil || s.Blocking != nil {
		t.Errorf("the status still says %+v %+v", s.Asked, s.Blocking)
	}
}

// TestAQuestionIsOfOneVersionOfTheSources: between two drops of one certificate it was published, and a node may have
// been installed again.
func TestAQuestionIsOfOneVersionOfTheSources(t *testing.T) {
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "s", Name: "c"},
		Data: map[string]string{"ca.crt": string(a) + string(b)}}
	p := newBench(t, nodeBundle("n", v1alpha1.Source{ConfigMap: &v1alpha1.KeyOf{Namespace: "s", Name: "c", Key: "ca.crt"}}), source)
	p.options.Fleet = nodes{{Name: "y"}}
	p.reconcile()
	write := func(bundles ...[]byte) {
		source.Data["ca.crt"] = string(slices.Concat(bundles...))
		if err := p.client.Update(t.Context(), source); err != nil {
			t.Fatal(err)
		}
	}
	write(b)
	p.reconcile()
	first := p.bundle("n").Status.Asked.ResourceVersion
	write(a, b) // and nobody looks
	write(b)
	p.options.Fleet = nodes{has("y", first, b)}
	p.reconcile()
	p.expect("n", "b a Published Ready RemovalBlocked 1/2 0/1")
	if again := p.bundle("n").Status.Asked.ResourceVersion; again == first {
		t.Errorf("the question of version %s still stands", first)
	}
}

// TestWhatWasReplacedIsRememberedIfTheWriteFails: it may have succeeded all the same, as when the answer is lost.
func TestTheYoungestRegistriesAreRefusedWhereANodeTakesNoMore(t *testing.T) {
	var all []client.Object
	for i := range watch.MaxEntries + 3 {
		o := nodeBundle(fmt.Sprintf("r%04d", i), inline(a))
		o.Spec.Field, o.Spec.Registry = string(plan.ImageRegistryBundleData), fmt.Sprintf("r%d", i)
		o.CreationTimestamp = metav1.NewTime(time.Unix(int64(2_000_000_000-i), 0)) // the last is the oldest
		all = append(all, o)
	}
	p := newBench(t, all...)
	reconciled := func() {
		_, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{
			Name: string(plan.ImageRegistryBundleData)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	published := func(name string) string {
		c := meta.FindStatusCondition(p.bundle(name).Status.Conditions, v1alpha1.Published)
		return c.Reason + " " + c.Message
	}
	reconciled()
	for name, want := range map[string]string{"r0000": "Refused a node takes no more than 1000 registries",
		"r0002": "Refused a node takes no more than 1000 registries", "r0003": "Published 1 certificates",
		"r1002": "Published 1 certificates"} {
		if got := published(name); got != want {
			t.Errorf("%s says %q, want %q", name, got, want)
		}
	}
	p.change("r1002", func(o *v1alpha1.NodeBundle) { o.Spec.Sources = append(o.Spec.Sources, inline(b)) })
	reconciled() // the others go on
	if got := published("r1002"); got != "Published 2 certificates" {
		t.Errorf("what has its place says %q", got)
	}
	if err := p.client.Delete(t.Context(), p.bundle("r1001")); err != nil {
		t.Fatal(err)
	}
	reconciled()
	if got := published("r0002"); !strings.HasPrefix(got, "Refused ") {
		t.Errorf("an entry that nobody has taken out makes room: %q", got)
	}
}

func TestWhatWasReplacedIsRememberedIfTheWriteFails(t *testing.T) {
	p := newBench(t, nodeBundle("n", inline(a)))
	p.reconcile()
	p.change("n", func(o *v1alpha1.NodeBundle) {
		o.Spec.Sources[0], o.Spec.Removal.Policy = inline(b), v1alpha1.Immediate
	})
	p.lost = true
	if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "rootCAData"}}); err == nil {
		t.Fatal("the write did not fail")
	}
	p.lost = false
	p.reconcile()
	p.expect("n", "a b Published Ready ReplacedAtOnce 1/2 ")
	if c := p.bundle("n").Status.Certificates[0]; !c.Replaced || time.Since(c.KeptSince.Time) > time.Minute {
		t.Errorf("the status says %+v", c)
	}
}
