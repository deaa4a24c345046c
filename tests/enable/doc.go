// SPDX-License-Identifier: Apache-2.0

// Package enable tests how hosts that nobody logs in to come to the agent, as docs/usage/install.md and
// docs/usage/openshift.md describe it: a layer of the image with a preset, cloud-init, Ignition, and Ignition as
// OpenShift uses it, with the token in a file or as a credential of systemd. Each test begins before the first
// boot and ends when the agent has got its identity from a real control plane and written its first file.
// tests/packages has the ways of an administrator at the host.
//
// The pages' blocks are what is run, on the host or on the machine that provisions it, so that the pages are
// right. The tools are the real ones: cloud-init, Ignition and Buildah of Debian, Butane by its Go module,
// and OpenShift's own definitions of its kinds on the API server. Ignition runs before the first boot on the host's
// disk, not from an initial ramdisk, which a container has none of.
//
// It needs root, the build tag real and Debian's ignition and buildah; a missing part is a failure.
package enable
