// SPDX-License-Identifier: Apache-2.0

package publisher

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher/merge"
)

// reader reads sources from the API server itself. A cache would need the right to list what it is not asked for.
type reader struct {
	client client.Reader
	kinds  meta.RESTMapper
}

// trustBundle is the kind that not every API server serves.
var trustBundle = schema.GroupKind{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}

// read is what a source says now, and the object to watch, which is zero if there is none. place tells sources apart
// that have no name.
func (r reader) read(ctx context.Context, s v1alpha1.Source, place int) (merge.Source, object) {
	switch {
	case s.ConfigMap != nil:
		return r.configMap(ctx, *s.ConfigMap)
	case s.Secret != nil:
		return r.secret(ctx, *s.Secret)
	case s.ClusterTrustBundle != nil:
		return r.trustBundle(ctx, s.ClusterTrustBundle.Name)
	}
	return merge.Source{Name: fmt.Sprintf("inline source %d", place), Data: []byte(s.Inline)}, object{}
}

func (r reader) configMap(ctx context.Context, k v1alpha1.KeyOf) (merge.Source, object) {
	var o corev1.ConfigMap
	err := r.client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, &o)
	data, ok := o.BinaryData[k.Key]
	if text, is := o.Data[k.Key]; is {
		data, ok = []byte(text), true
	}
	return keyOf("ConfigMap", k, version(&o), data, ok, err),
		object{corev1.SchemeGroupVersion.WithResource("configmaps"), k.Namespace, k.Name}
}

func (r reader) secret(ctx context.Context, k v1alpha1.KeyOf) (merge.Source, object) {
	var o corev1.Secret
	err := r.client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, &o)
	data, ok := o.Data[k.Key]
	return keyOf("Secret", k, version(&o), data, ok, err),
		object{corev1.SchemeGroupVersion.WithResource("secrets"), k.Namespace, k.Name}
}

// version is that of an object among all that ever had its name.
func version(o client.Object) string { return string(o.GetUID()) + "/" + o.GetResourceVersion() }

func keyOf(kind string, k v1alpha1.KeyOf, version string, data []byte, ok bool, err error) merge.Source {
	s := outcome(printable.Text(fmt.Sprintf("%s %s/%s key %s", kind, k.Namespace, k.Name, k.Key)), version, data, err)
	if err == nil && !ok {
		s.Reason, s.Problem = merge.SourceMissing, "has no such key"
	}
	return s
}

func (r reader) trustBundle(ctx context.Context, name string) (merge.Source, object) {
	source := printable.Text("ClusterTrustBundle " + name)
	m, err := r.kinds.RESTMapping(trustBundle)
	if meta.IsNoMatchError(err) {
		return merge.Source{Name: source, Reason: merge.SourceUnreadable, Problem: "the API server does not serve the kind"},
			object{}
	}
	if err != nil {
		return outcome(source, "", nil, err), object{}
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(m.GroupVersionKind)
	err = r.client.Get(ctx, client.ObjectKey{Name: name}, o)
	text, _, _ := unstructured.NestedString(o.Object, "spec", "trustBundle") // what is no string is empty
	return outcome(source, version(o), []byte(text), err), object{resource: m.Resource, name: name}
}

// outcome is a source that was read, or not.
func outcome(name, version string, data []byte, err error) merge.Source {
	s := merge.Source{Name: name, Data: data, Version: version}
	switch {
	case err == nil:
	case apierrors.IsNotFound(err):
		s.Reason, s.Problem = merge.SourceMissing, "does not exist"
	case apierrors.IsForbidden(err):
		s.Reason, s.Problem = merge.SourceUnreadable, "the publisher has no right to read it"
	default:
		s.Reason, s.Problem = merge.SourceUnreadable, printable.Text(err.Error())
	}
	return s
}
