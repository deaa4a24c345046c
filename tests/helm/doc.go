// SPDX-License-Identifier: Apache-2.0

// Package helm tests the chart of packaging/helm: with each choice of values it makes the objects that kustomize makes
// with the same components.
//
// It is a module of its own, so that the product's does not name Helm and kustomize. Both are used as libraries; the
// chart is put together as `make chart` does it, and no cluster is asked.
package helm
