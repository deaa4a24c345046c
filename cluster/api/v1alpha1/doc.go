// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the Go types of the kinds of node-cert-agent.io that the cluster side reads and
// writes. The definitions in packaging/kubernetes are generated from them (`make generate`), and so are the
// texts of `kubectl explain`, which are the comments here.
//
// It owns what can be said, not what it means: the schema refuses what can be told from one object alone,
// and cluster/publisher judges the rest.
//
// +kubebuilder:object:generate=true
// +groupName=node-cert-agent.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind here.
var GroupVersion = schema.GroupVersion{Group: "node-cert-agent.io", Version: "v1alpha1"}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodeBundle{}, &NodeBundleList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
