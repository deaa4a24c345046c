// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	coordination "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// lease is the name of the Lease: all controllers of one replica lead together.
const lease = "node-cert-controller"

// work runs the controllers until ctx ends. It fails if it cannot begin, and when another replica has the lease
// that was ours: the process has to end then, and whoever runs it starts it again. An API server that is away
// before that is waited for.
func work(ctx context.Context, s settings) error {
	config, err := connection(s.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading how to reach the API server: %v", err)
	}
	config.UserAgent = "node-cert-controller/" + version
	// An approval takes six requests, one after the other, and a fleet that boots wants thousands: this client waits for
	// the API server and not for itself. What strangers can make it ask is bounded by the approver, and the API server
	// has priorities of its own.
	config.QPS, config.Burst = 400, 400
	logging := zap.NewProductionConfig()
	logging.Level.SetLevel(zapcore.Level(s.level))
	logger, err := logging.Build()
	if err != nil {
		return err
	}
	if s.metricsCerts != "" { // without the files the server would sign a certificate itself
		if _, err := tls.LoadX509KeyPair(filepath.Join(s.metricsCerts, "tls.crt"),
			filepath.Join(s.metricsCerts, "tls.key")); err != nil {
			return fmt.Errorf("reading the certificate of the metrics: %v", err)
		}
	}
	log.SetLogger(zapr.NewLogger(logger))
	mgr, err := manager.New(config, options(s, logger))
	if err != nil {
		return fmt.Errorf("making the manager: %v", err)
	}
	if err := mgr.AddReadyzCheck("leader", leaderKnown(mgr.GetAPIReader(), s.namespace)); err != nil {
		return err
	}
	for _, name := range s.controllers {
		if err := controllers[name](mgr, s, logger); err != nil {
			return fmt.Errorf("adding %s: %v", name, err)
		}
	}
	return mgr.Start(ctx)
}

func options(s settings, logger *zap.Logger) manager.Options {
	renew, retry := s.lease*2/3, s.lease*2/15
	return manager.Options{
		Logger:         zapr.NewLogger(logger),
		LeaderElection: true, LeaderElectionID: lease, LeaderElectionNamespace: s.namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &s.lease, RenewDeadline: &renew, RetryPeriod: &retry,
		HealthProbeBindAddress: available(s.probes, logger),
		Metrics: server.Options{
			BindAddress: available(s.metrics, logger), SecureServing: true, CertDir: s.metricsCerts,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
			// Without HTTP/2 nobody who is not authenticated yet can open streams.
			TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }},
		},
	}
}

// available is the address, or 0, which is none, if it cannot be had: another replica on the same host may have
// it, and the work goes on.
func available(address string, logger *zap.Logger) string {
	if address == "" {
		return "0"
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		logger.Warn("probes or metrics are not answered", zap.Error(err))
		return "0"
	}
	_ = l.Close() // nothing came in yet
	return address
}

// leaderKnown is ready once the API server has said who leads, which may be another replica.
func leaderKnown(reader client.Reader, namespace string) healthz.Checker {
	var known atomic.Bool
	return func(r *http.Request) error {
		if known.Load() {
			return nil
		}
		var l coordination.Lease
		if err := reader.Get(r.Context(), client.ObjectKey{Namespace: namespace, Name: lease}, &l); err != nil {
			return fmt.Errorf("no leader is known: %v", err)
		}
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			return fmt.Errorf("no replica leads")
		}
		known.Store(true)
		return nil
	}
}

func connection(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}
