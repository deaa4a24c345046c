// SPDX-License-Identifier: Apache-2.0

// Command kubelet is the kubelet of the same Kubernetes as the servers.
//
// It shares their module, so that all of them are of one version, and not their binary: kubelet and
// etcd each take the process's global flags for themselves.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the client's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version's
	"k8s.io/kubernetes/cmd/kubelet/app"
)

func main() { os.Exit(cli.Run(app.NewKubeletCommand(context.Background()))) }
