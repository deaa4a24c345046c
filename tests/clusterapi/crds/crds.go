// SPDX-License-Identifier: Apache-2.0

// Package crds pins the version of Cluster API whose kinds tests/clusterapi installs. They are in the module's folder in
// the module cache. It is a module of its own, so that the product's go.mod does not name Cluster API, which the product
// must not link.
package crds
