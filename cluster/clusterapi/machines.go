// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/clusterapi/expiry"
	"github.com/node-cert-agent/node-cert-agent/cluster/clusterapi/workload"
)

// Labels of Machines; both are Cluster API's.
const (
	ofCluster    = "cluster.x-k8s.io/cluster-name"
	controlPlane = "cluster.x-k8s.io/control-plane"
)

// What Events are about.
const (
	reading = "ReadStates"
	stating = "StateExpiry"
)

// Reasons of Events, beside those of expiry.
const (
	kubeconfigRefused = "KubeconfigRefused"
	unreachable       = "WorkloadClusterUnreachable"
	stated            = "ExpiryStated"
	withdrawn         = "ExpiryWithdrawn"
	forbidden         = "SecretForbidden"
)

// state has each Machine of the control plane state its date. shared is the end of the pair that a new one would get.
func (r *clusterAPI) state(ctx context.Context, cluster *unstructured.Unstructured, shared time.Time) error {
	machines, err := r.list(ctx, "Machine", client.InNamespace(cluster.GetNamespace()),
		client.MatchingLabels{ofCluster: cluster.GetName()}, client.HasLabels{controlPlane})
	if err != nil {
		return fmt.Errorf("listing the Machines: %v", err)
	}
	machines = slices.DeleteFunc(machines, func(m unstructured.Unstructured) bool {
		return m.GetDeletionTimestamp() != nil || paused(&m) || nodeOf(&m) == ""
	})
	if len(machines) == 0 {
		return nil
	}
	asked, err := r.open(ctx, cluster)
	if asked == nil {
		return err
	}
	defer asked.Close()
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	var failed error
	for i := range machines {
		s, err := asked.State(ctx, nodeOf(&machines[i]))
		if errors.Is(err, workload.ErrUnreadable) { // the node can cause it, and shall hold up no other
			r.tell.wrong(&machines[i], stating, expiry.Unreadable, err.Error())
			continue
		}
		if err != nil {
			r.tell.wrong(cluster, reading, unreachable, err.Error())
			return fmt.Errorf("reading the states of %s/%s: %v", cluster.GetNamespace(), cluster.GetName(), err)
		}
		if err := r.decide(ctx, &machines[i], s, shared); err != nil {
			failed = err
		}
	}
	r.tell.well(cluster, reading)
	return failed
}

// open gives the workload cluster of a Cluster, or nil. A kubeconfig that cannot be used is no error that trying again
// soon would end.
func (r *clusterAPI) open(ctx context.Context, cluster *unstructured.Unstructured) (*workload.Cluster, error) {
	s, err := r.secret(ctx, cluster, "kubeconfig")
	if err != nil || s == nil {
		return nil, err
	}
	w, err := workload.Open(s.Data["value"])
	if err != nil {
		r.tell.wrong(cluster, reading, kubeconfigRefused, fmt.Sprintf("the key value of Secret %s %v", s.Name, err))
		return nil, nil
	}
	return w, nil
}

func nodeOf(m *unstructured.Unstructured) string {
	node, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name")
	return node
}

// decide carries out the decision about one Machine.
func (r *clusterAPI) decide(ctx context.Context, m *unstructured.Unstructured, s *v1alpha1.NodeCertificateState,
	shared time.Time) error {
	in := expiry.Input{Now: r.now(), Shared: shared, StaleAfter: r.options.StaleAfter, Machine: expiry.Machine{
		Created: m.GetCreationTimestamp().Time, Value: m.GetAnnotations()[expiry.Annotation], Ours: ours(m)}}
	if s != nil {
		in.Report = &expiry.Report{Written: v1alpha1.Reported(s.ManagedFields), Heartbeat: s.Status.Heartbeat.Time,
			Renewal: s.Status.Renewal}
	}
	d := expiry.Decide(in)
	switch {
	case d.Reason != "":
		r.tell.wrong(m, stating, d.Reason, d.Fact)
		return nil
	case d.Action == expiry.Leave:
		r.tell.well(m, stating)
		return nil
	}
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(annotated(m, d.Value)), client.FieldOwner(name))
	if others := conflict(err); others != "" {
		r.tell.wrong(m, stating, expiry.Foreign, "the annotation belongs to another manager: "+others)
		return nil
	}
	if err != nil {
		return fmt.Errorf("annotating Machine %s/%s: %v", m.GetNamespace(), m.GetName(), err)
	}
	if d.Action == expiry.Remove {
		r.tell.done(m, stating, withdrawn, "its host says no more when certificates end; Cluster API goes by its own date")
		return nil
	}
	r.tell.done(m, stating, stated, "the first certificate ends that nobody on the host renews in time: "+d.Value)
	return nil
}

// annotated is what is to be applied: the annotation alone, and without a value nothing, which takes ours away. By uid
// and version it is for the Machine that was read and as it was: no other of that name is made or changed.
func annotated(m *unstructured.Unstructured, value string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(m.GroupVersionKind())
	u.SetNamespace(m.GetNamespace())
	u.SetName(m.GetName())
	u.SetUID(m.GetUID())
	u.SetResourceVersion(m.GetResourceVersion())
	if value != "" {
		u.SetAnnotations(map[string]string{expiry.Annotation: value})
	}
	return u
}

// ours tells whether we, and we alone, wrote the annotation.
func ours(m *unstructured.Unstructured) bool {
	mine, others := false, false
	for _, f := range m.GetManagedFields() {
		if !owns(f) {
			continue
		}
		if f.Manager == name && f.Operation == metav1.ManagedFieldsOperationApply {
			mine = true
		} else {
			others = true
		}
	}
	return mine && !others
}

// owns tells whether a manager owns the annotation.
func owns(f metav1.ManagedFieldsEntry) bool {
	var fields struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"f:annotations"`
		} `json:"f:metadata"`
	}
	if f.FieldsV1 == nil || json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	_, owned := fields.Metadata.Annotations["f:"+expiry.Annotation]
	return owned
}

// conflict says which other managers own the annotation, or nothing if err does not.
func conflict(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsConflict(err) || status.Status().Details == nil {
		return ""
	}
	var all []string
	for _, c := range status.Status().Details.Causes {
		if c.Type == metav1.CauseTypeFieldManagerConflict {
			all = append(all, c.Message)
		}
	}
	return strings.Join(all, "; ")
}

// secret reads one of a Cluster, by its purpose; nil if there is none, or if nobody granted us to read it.
func (r *clusterAPI) secret(ctx context.Context, cluster *unstructured.Unstructured, purpose string) (*corev1.Secret,
	error) {
	var s corev1.Secret
	key := client.ObjectKey{Namespace: cluster.GetNamespace(), Name: cluster.GetName() + "-" + purpose}
	err := r.reader.Get(ctx, key, &s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		r.tell.wrong(cluster, "Read "+purpose, forbidden,
			fmt.Sprintf("Secret %s may not be read: bind node-cert-cluster-api-namespace in its namespace", key.Name))
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %v", key, err)
	}
	return &s, nil
}
