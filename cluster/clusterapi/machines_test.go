// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/node-cert-agent/node-cert-agent/cluster/clusterapi/etcdclient"
	"github.com/node-cert-agent/node-cert-agent/cluster/clusterapi/expiry"
)

var (
	march = time.Date(2031, 3, 1, 0, 0, 0, 0, time.UTC)
	april = time.Date(2031, 4, 1, 0, 0, 0, 0, time.UTC)
)

const inMarch, inApril = "2031-03-01T00:00:00Z", "2031-04-01T00:00:00Z"

func TestAMachineStatesTheFirstEndThatNobodyRenewsUntilTheHostSaysNoMore(t *testing.T) {
	b := newBench(t, cluster(), machine("m1"), machine("m2"))
	b.reports("m1", march)
	b.reports("m2", april)
	b.expect("m1", inMarch, "ExpiryStated ExpiryStated")
	b.has("m2", inApril)
	version := b.read("Machine", "m1").GetResourceVersion()
	b.expect("m1", inMarch, "")
	if got := b.read("Machine", "m1").GetResourceVersion(); got != version {
		t.Error("what stands there was written again")
	}
	b.reports("m1", april) // it was renewed in place
	b.expect("m1", inApril, "ExpiryStated")
	b.states["m1"].Status.Renewal = nil
	b.expect("m1", "", "ExpiryWithdrawn")
	b.expect("m1", "", "")
	b.has("m2", inApril)
}

func TestWhatAPersonWroteStays(t *testing.T) {
	b := newBench(t, cluster(), machine("m1"))
	b.annotate("m1", inApril)
	b.reports("m1", march)
	b.expect("m1", inApril, expiry.Foreign)
	b.expect("m1", inApril, "")
	b.annotate("m1", "") // and has changed his mind
	b.expect("m1", inMarch, "ExpiryStated")
	b.annotate("m1", inApril)
	b.expect("m1", inApril, expiry.Foreign)
	b.states["m1"].Status.Renewal = nil
	b.expect("m1", inApril, "")
}

func TestOnlyMachinesOfTheControlPlaneWithANodeAreTouched(t *testing.T) {
	worker, elsewhere, young, going, waits := machine("worker"), machine("elsewhere"), machine("young"), machine("going"), machine("waits")
	worker.SetLabels(map[string]string{ofCluster: "c1"})
	elsewhere.SetLabels(map[string]string{ofCluster: "c2", controlPlane: ""})
	unstructured.RemoveNestedField(young.Object, "status")
	at := metav1.Now()
	going.SetDeletionTimestamp(&at)
	going.SetFinalizers([]string{"machine.cluster.x-k8s.io"})
	waits.SetAnnotations(map[string]string{"cluster.x-k8s.io/paused": ""})
	all := []client.Object{cluster(), worker, elsewhere, young, going, waits}
	b := newBench(t, all...)
	for _, m := range all[1:] {
		b.reports(m.GetName(), march)
	}
	for _, m := range all[1:] {
		b.expect(m.GetName(), "", "")
	}
}

func TestAPausedOrGoingClusterIsLeftAlone(t *testing.T) {
	specified, annotated, going := cluster(), cluster(), cluster()
	specified.Object["spec"] = map[string]any{"paused": true}
	annotated.SetAnnotations(map[string]string{"cluster.x-k8s.io/paused": "true"})
	at := metav1.Now()
	going.SetDeletionTimestamp(&at)
	going.SetFinalizers([]string{"cluster.cluster.x-k8s.io"})
	for _, c := range []*unstructured.Unstructured{specified, annotated, going} {
		b := newBench(t, c, machine("m1"))
		b.reports("m1", march)
		b.expect("m1", "", "")
	}
	b := newBench(t, machine("m1")) // and one that is gone
	b.expect("m1", "", "")
}

func TestANodeWithoutAStateIsSaidAndChangesNothing(t *testing.T) {
	b := newBench(t, cluster(), machine("m1"), machine("m2"))
	b.reports("m2", march)
	b.expect("m2", inMarch, expiry.NoState+" ExpiryStated")
	b.has("m1", "")
	delete(b.states, "m2")
	b.expect("m2", inMarch, expiry.NoState)
}

func TestASilentNodeChangesNothing(t *testing.T) {
	b := newBench(t, cluster(), machine("m1"))
	b.reports("m1", march)
	b.expect("m1", inMarch, "ExpiryStated")
	b.reports("m1", april)
	old := metav1.NewTime(time.Now().Add(-4 * time.Hour))
	b.states["m1"].ManagedFields[0].Time = &old
	b.expect("m1", inMarch, expiry.StateStale)
}

// TestANodeThatWritesWhatNobodyCanReadHoldsUpNoOther: the API server takes dates that Go does not, so a node that is in
// other hands can have its state refused.
func TestANodeThatWritesWhatNobodyCanReadHoldsUpNoOther(t *testing.T) {
	b := newBench(t, cluster(), machine("m1"), machine("m2"))
	b.reports("m1", march)
	b.reports("m2", march)
	b.expect("m1", inMarch, "ExpiryStated ExpiryStated")
	b.reports("m2", april)
	b.texts = map[string]string{"m1": `{"metadata":{"name":"m1"},"status":{"renewal":{"earliestNotAfter":"2031-04-01t00:00:00z"}}}`}
	b.expect("m1", inMarch, expiry.Unreadable+" ExpiryStated")
	b.has("m2", inApril)
	b.expect("m1", inMarch, "")
}

func TestAWorkloadClusterThatDoesNotAnswerIsAnErrorAndSaidOnce(t *testing.T) {
	b := newBench(t, cluster(), machine("m1"))
	b.reports("m1", march)
	b.silent = true
	for _, want := range []string{unreachable, ""} {
		if err := b.reconcile(); err == nil {
			t.Error("nobody would try again")
		}
		if got := b.told(); got != want {
			t.Errorf("told is %q, want %q", got, want)
		}
	}
	b.silent = false
	b.expect("m1", inMarch, "ExpiryStated")
	b.silent = true
	if err := b.reconcile(); err == nil || b.told() != unreachable {
		t.Error("the second time is not said")
	}
}

func TestAKubeconfigThatIsRefusedAsksNobody(t *testing.T) {
	b := newBench(t, cluster(), machine("m1"))
	b.reports("m1", march)
	s := kubeconfig(b.server)
	s.Data["value"] = []byte(strings.Replace(string(s.Data["value"]), `"user": {`, `"user": {"exec": {"command": "true"}, `, 1))
	if err := b.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.expect("m1", "", kubeconfigRefused)
	if err := b.client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.expect("m1", "", "") // the cluster is only just being made
}

// TestTheMachineIsTheOneThatWasRead: between reading and writing it may be replaced by one of the same name.
func TestTheMachineIsTheOneThatWasRead(t *testing.T) {
	m := machine("m1")
	m.SetResourceVersion("7")
	u := annotated(m, inMarch)
	if u.GetUID() != m.GetUID() || u.GetResourceVersion() != "7" || len(u.GetLabels()) > 0 || u.Object["status"] != nil {
		t.Errorf("what is applied is %v", u.Object)
	}
}

func TestAnEventIsRepeatedAfterAnHour(t *testing.T) {
	b := newBench(t, cluster(), machine("m1"))
	b.expect("m1", "", expiry.NoState)
	b.expect("m1", "", "")
	b.tell.now = func() time.Time { return time.Now().Add(again) }
	b.expect("m1", "", expiry.NoState)
}

func TestEveryReasonIsOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/usage/cluster-api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{expiry.NoState, expiry.StateStale, expiry.Unreadable, expiry.Foreign, kubeconfigRefused, unreachable,
		stated, withdrawn, forbidden, renewed, notWritten, etcdclient.NoKey, etcdclient.WrongCA, etcdclient.CAEnds,
		etcdclient.BadPair, etcdclient.NotIssued} {
		if !strings.Contains(string(page), "| `"+reason+"` |") {
			t.Errorf("%s is not in the table", reason)
		}
	}
}
