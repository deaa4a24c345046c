// SPDX-License-Identifier: Apache-2.0

// Package watch follows the one object that says what the host's certificates shall be, and in the
// same way the one ConfigMap that some hosts need beside it. It owns the way from the bytes of an HTTP
// response to plan.Desired, and the notice that a directory of the host has changed (FileWatcher).
//
// The object is about 100 KB, nearly all of it fields that are not ours, so it is decoded from the
// stream: the fields that are configured, what names the version, and nothing else is kept (Watcher,
// DecodeObject).
// A field that cannot be used is a fact about that field and never an error of the object, and
// Projector turns it into a refusal: the other files go on.
//
// The Watcher promises one open request at a time, the newest object whatever the consumer's
// speed, a State with a reason whenever there is none, and a next try for everything that can go
// wrong. It never asks for a resourceVersion: a watch without one begins with the object itself,
// which saves a request, and the 410 that every resumption after a restart of the API server costs.
//
// It does not authenticate, and does not know certificates of its own: the caller brings an
// *http.Client that does. It keeps nothing on disk.
//
// Sources: Kubernetes API concepts, "Efficient detection of changes"; openshift/api
// machineconfiguration/v1 types.go; inotify(7).
package watch
