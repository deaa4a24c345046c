// SPDX-License-Identifier: Apache-2.0

// Package kubeadm tests docs/usage/kubeadm.md on a cluster that kubeadm made: two test hosts with a cable between them, on
// one of them kubeadm init, on the other kubeadm join, with kubelet and containerd of their own. The control plane runs as
// static pods, and node-cert-controller as the pods of its Deployment.
//
// The images are made by buildah of the binaries that the other suites use. There is no network of pods, no kube-proxy and no
// DNS: all pods have the network of their host, and find the API server by its address.
package kubeadm
