// SPDX-License-Identifier: Apache-2.0

// Package pending keeps the certificate requests that wait for a decision, and says which of them is judged
// next.
//
// It owns what is kept of a request (its claim is read once), the index by node and by requester, the order
// of work and how often what was left is looked at again. It is pure but for its locks: times come in. It
// promises that a renewal is among the next two requests however many others wait, that one requester delays
// another by one request at a time, and that nothing is forgotten: whatever was left is due again.
//
// It makes no requests and decides about none: package verdict does.
//
// Sources: the priority queue of sigs.k8s.io/controller-runtime and API priority and fairness of the API
// server, which know classes or flows, but not what a requester's turn costs.
package pending
