// SPDX-License-Identifier: Apache-2.0

// Package exposition reads the metrics of agent and approver as Prometheus does, and has its linter judge
// names, kinds and help texts.
//
// It is a module of its own, so that the product's go.mod does not name Prometheus' client library, which costs
// 2.7 MB and is not linked. `make test` runs it as a part.
package exposition
