// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/log"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
	"github.com/node-cert-agent/node-cert-agent/cluster/clusterapi"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// The bounds that the shipped policies set as well.
const (
	shortest = 10 * time.Minute
	longest  = 90 * 24 * time.Hour
)

const day = 24 * time.Hour

// settings are the flags.
type settings struct {
	controllers                   []string
	kubeconfig, namespace, nodes  string
	metrics, metricsCerts, probes string
	lifetime, stale, lease        time.Duration
	etcdClient                    time.Duration
	level                         log.Level
	machines                      bool
}

func root() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "node-cert-controller",
		Short: "The cluster side of node-cert-agent",
		Long: `node-cert-controller runs beside the control plane of a cluster. Its controller "approver" approves the
certificate requests by which the agents of known nodes get and renew their identity. "publisher" fills the
ControllerConfig from NodeBundles. "cluster-api" runs in a management cluster of Cluster API: Machines state when
certificates end that their hosts do not renew, and the API servers' pair for an external etcd is renewed. Several
replicas may run; one works, the others wait.

Exit codes: 0 stopped by a signal, 1 failed or no longer the leader, 2 usage.`,
		Version: version,
		Args:    process.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return process.Misused(err)
			}
			return work(c.Context(), s)
		},
	}
	cmd.SetVersionTemplate("node-cert-controller {{.Version}}\n")
	s.define(cmd)
	return cmd
}

func (s *settings) define(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&s.controllers, "controllers", []string{"approver"},
		"run these `NAMES`: "+strings.Join(known(), ", "))
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "authenticate with `FILE`; default is the pod's ServiceAccount")
	f.StringVar(&s.namespace, "namespace", "node-cert-agent", "the `NAMESPACE` of the Lease")
	f.DurationVar(&s.lease, "lease", 15*time.Second, "how long a replica that fell silent counts as the leader")
	f.StringVar(&s.probes, "health-probe-bind-address", "", "answer /healthz and /readyz on `ADDRESS:PORT`")
	f.StringVar(&s.metrics, "metrics-bind-address", "",
		"answer /metrics on `ADDRESS:PORT` by HTTPS, to whoever may get /metrics in the cluster")
	f.StringVar(&s.metricsCerts, "metrics-cert-dir", "",
		"serve metrics with tls.crt and tls.key of `DIR`, read anew when they change; default is a self-signed certificate")
	f.StringVar(&s.nodes, "nodes", "", "approver: also accept the machines whose names are in `FILE`, one on a line; "+
		"it is read anew for each request")
	f.BoolVar(&s.machines, "machines", false, "approver: also accept the nodes of OpenShift's Machines")
	f.DurationVar(&s.lifetime, "max-lifetime", verdict.Shipped.MaxLifetime,
		"approver: the longest lifetime that a certificate may be asked for")
	f.DurationVar(&s.stale, "stale-after", verdict.Shipped.StaleAfter,
		"approver: how long after a node's last report its identity counts as in use")
	f.DurationVar(&s.etcdClient, "etcd-client-renew-before", clusterapi.Usual.Renew.Before,
		"cluster-api: renew the pair for an external etcd when less than this, or than a third of its life, is left")
	f.Var(&s.level, "log-level", "log from `LEVEL` on: debug, info, warn or error")
}

// check finds what cannot be meant.
func (s *settings) check() error {
	slices.Sort(s.controllers) // components add the flag each, and each names the approver
	s.controllers = slices.Compact(s.controllers)
	for _, name := range s.controllers {
		if controllers[name] == nil {
			return fmt.Errorf("--controllers: there is no %q; there are %s", name, strings.Join(known(), ", "))
		}
	}
	for name, address := range map[string]string{"health-probe-bind-address": s.probes,
		"metrics-bind-address": s.metrics} {
		if err := checkAddress(address); err != nil {
			return fmt.Errorf("--%s %q is not an address and a port, such as 127.0.0.1:10457: %v", name, address, err)
		}
	}
	switch {
	case len(s.controllers) == 0:
		return fmt.Errorf("--controllers names none; there are %s", strings.Join(known(), ", "))
	case s.metricsCerts != "" && s.metrics == "":
		return fmt.Errorf("--metrics-cert-dir needs --metrics-bind-address")
	case s.lifetime < shortest || s.lifetime > longest:
		return fmt.Errorf("--max-lifetime %v is not between %v and %v", s.lifetime, shortest, longest)
	case s.stale < time.Minute || s.stale > 30*day:
		return fmt.Errorf("--stale-after %v is not between a minute and 30 days", s.stale)
	case s.etcdClient < 0 || s.etcdClient > 180*day:
		return fmt.Errorf("--etcd-client-renew-before %v is not between nothing and 180 days", s.etcdClient)
	case s.lease < time.Second || s.lease > time.Hour:
		return fmt.Errorf("--lease %v is not between a second and an hour", s.lease)
	case s.lease >= s.stale: // an outage that the lease outlives is counted as silence of the nodes
		return fmt.Errorf("--lease %v is not shorter than --stale-after %v", s.lease, s.stale)
	}
	return nil
}

// checkAddress takes none, and any address of this host: names are not resolved.
func checkAddress(address string) error {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if host != "" && net.ParseIP(host) == nil {
		return fmt.Errorf("%q is no IP address", host)
	}
	_, err = net.LookupPort("tcp", port)
	return err
}

// known are the names of the controllers.
func known() []string { return slices.Sorted(maps.Keys(controllers)) }
