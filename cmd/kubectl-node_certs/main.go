// SPDX-License-Identifier: Apache-2.0

// Command kubectl-node_certs is a plugin of kubectl for those who rotate CAs: which nodes follow, and when all have a
// certificate.
//
// This package is flags, construction and tables; exit codes: 0 ok, 1 failed or not in time, 2 usage, 3 something
// that expires was found. What a node has is decided in package cluster/fleet.
//
// Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/node-cert-agent/node-cert-agent/cluster/fleet"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// version is set by the linker.
var version = "0.0.0-dev"

func main() { process.Main(run) }

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return process.Run(ctx, "kubectl node-certs", root(), nil, args, stdout, stderr)
}

// connection is how to reach the cluster, as kubectl's flags of the same names say it.
type connection struct{ kubeconfig, context string }

func root() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:         "kubectl-node_certs",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl node-certs"},
		Short:       "See which nodes have which certificates",
		Version:     version,
	}
	cmd.PersistentFlags().StringVar(&c.kubeconfig, "kubeconfig", "", "the `FILE` to use, as kubectl does")
	cmd.PersistentFlags().StringVar(&c.context, "context", "", "the `NAME` of the context in it")
	cmd.AddCommand(statusCommand(&c), whyCommand(&c), certsCommand(&c), waitCommand(&c), releaseCommand(&c),
		approveCommand(&c))
	return cmd
}

func (c *connection) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: c.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading how to reach the cluster: %v", err)
	}
	config.QPS = -1 // five requests a second are too few for the pages of a large cluster; one follows the other
	config.UserAgent = "kubectl-node-certs/" + version
	return config, nil
}

// cluster is what is read from.
func (c *connection) cluster() (cluster, error) {
	config, err := c.config()
	if err != nil {
		return cluster{}, err
	}
	return newCluster(config)
}

// listTimeout is more than the lists of a large cluster take.
const listTimeout = 30 * time.Second

// watch gives the nodes once all are known, and watches them until ctx is done. Without the right to list them it fails
// after listTimeout, because the watch itself would try for ever.
func watch(ctx context.Context, config *rest.Config) (*fleet.Fleet, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	f, err := fleet.New(config, client)
	if err != nil {
		return nil, err
	}
	go func() { _ = f.Run(ctx) }() // it ends with ctx, and cannot fail
	first, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if !f.Ready(first) {
		return nil, fmt.Errorf("the Nodes and NodeCertificateStates cannot be listed: 'kubectl get nodes,ncs' says why")
	}
	return f, nil
}
