// SPDX-License-Identifier: Apache-2.0

// Command kubeadm is the kubeadm of the same Kubernetes as the servers.
//
// It is a binary of its own, because it runs on the hosts, as the kubelet does.
package main

import (
	"k8s.io/kubernetes/cmd/kubeadm/app"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
)

func main() { errors.HandleError(app.Run()) }
