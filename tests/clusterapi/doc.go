// SPDX-License-Identifier: Apache-2.0

// Package clusterapi tests the controller cluster-api against a real control plane with the kinds of Cluster API as
// Cluster API ships them (crds), with the rights that packaging/kubernetes/components/cluster-api and its page grant
// and no others.
//
// It owns nothing beside its tests, which carry the build tag real. One API server is the management cluster and the
// workload clusters. Cluster API itself, agents and people are played by kubectl.
package clusterapi
