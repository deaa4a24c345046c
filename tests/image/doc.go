// SPDX-License-Identifier: Apache-2.0

// Package image tests the image of node-cert-controller and dist/install.yaml: two builds have the same digest, the
// file names that digest and is all that a cluster needs, and what the image has runs with the arguments and the rights
// that the file gives it.
//
// It needs buildah and jq, and a control plane. No container is started: the program is taken out of the image's layer,
// and has the rights of its account through a client certificate for it.
package image
