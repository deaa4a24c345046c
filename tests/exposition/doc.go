// SPDX-License-Identifier: Apache-2.0

// Package exposition reads the metrics of the agent as Prometheus does, and has its linter judge
// names, kinds and help texts.
//
// It is a module of its own, because the agent writes the text itself: Prometheus' client library costs 2.7 MB and is
// linked by node-cert-controller alone. `make test` runs it as a part.
package exposition
