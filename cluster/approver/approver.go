// SPDX-License-Identifier: Apache-2.0

// Package approver watches the certificate requests of nodes and carries out the verdicts of package
// verdict: it approves, denies with a condition, or leaves pending with an event that names the check.
//
// It owns the effects on the cluster: conditions of CertificateSigningRequests of our own, the spec of
// NodeCertificateStates, events, and the deletion of bootstrap tokens that are labelled for single use. It
// promises that a token is deleted only after the node wrote under the identity which the token got, so that a
// lost answer never costs the token; that an error of the API leaves a request pending and is tried again; and
// that of several replicas one decides, the leader of the manager. Should two do so for a moment, while the
// lease changes hands, they decide the same from the same facts.
//
// It has informers and a queue of its own in place of the manager's cache and work queue: see
// docs/decisions/0035-controller-runtime.md. It signs nothing and makes no requests. Without it, kubectl
// certificate approve does its work.
//
// Sources: the Kubernetes API, certificates.k8s.io/v1 and authorization.k8s.io/v1.
package approver

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	core "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	registry "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// Name is the approver's name as a field manager and a source of events.
const Name = "node-cert-controller-approver"

// Options are the choices of an administrator.
type Options struct {
	Policy verdict.Policy
	// Listed says whether the administrator's list of nodes holds the name, for machines that are not
	// Nodes, or not yet. An error leaves requests pending.
	Listed func(node string) (bool, error)
	// Machines also admits nodes for which there is a Machine of OpenShift.
	Machines bool
	Log      *zap.Logger
}

// approver is what the manager runs while this replica leads.
type approver struct {
	*controller
	broadcaster record.EventBroadcaster
	voice       kubernetes.Interface
}

// Add has the manager run the approver whenever this replica leads, and answer for it: its metrics are in the
// registry of controller-runtime, and its check of health fails while one request is in hand for too long. An
// API server that is away is no error.
func Add(mgr manager.Manager, o Options) error {
	to, voice, err := connect(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("making a client: %v", err)
	}
	broadcaster := record.NewBroadcaster()
	recorder := broadcaster.NewRecorder(scheme.Scheme, core.EventSource{Component: Name})
	a := &approver{newController(to, recorder, o), broadcaster, voice}
	if err := a.metrics.register(registry.Registry); err != nil {
		return fmt.Errorf("registering metrics: %v", err)
	}
	if err := mgr.AddHealthzCheck("approver", a.progress.check); err != nil {
		return err
	}
	return mgr.Add(a)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*approver) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (a *approver) Start(ctx context.Context) error {
	defer a.broadcaster.Shutdown()
	a.broadcaster.StartRecordingToSink(&typed.EventSinkImpl{Interface: a.voice.CoreV1().Events("")})
	a.Log.Info("leading")
	return a.run(ctx)
}

// connect makes the clients, and one for events alone, so that many of them do not hold up the work.
func connect(config *rest.Config) (to clients, voice kubernetes.Interface, err error) {
	if to.typed, err = kubernetes.NewForConfig(config); err != nil {
		return clients{}, nil, err
	}
	if to.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return clients{}, nil, err
	}
	if to.metadata, err = metadata.NewForConfig(config); err != nil {
		return clients{}, nil, err
	}
	events := rest.CopyConfig(config)
	events.QPS, events.Burst = 10, 50
	voice, err = kubernetes.NewForConfig(events)
	return to, voice, err
}
