// SPDX-License-Identifier: Apache-2.0

// Package approver watches the certificate requests of nodes and carries out the verdicts of package
// verdict: it approves, denies with a condition, or leaves pending with an event that names the check.
//
// It owns the effects on the cluster: conditions of CertificateSigningRequests of our own, the status of
// NodeCertificateStates, events, one Lease, and the deletion of bootstrap tokens that are labelled for
// single use. It promises that a token is deleted only after the node wrote under the identity which the
// token got, so that a lost answer never costs the token; that an error of the API leaves a request
// pending and is tried again; and that of several replicas one decides. Should two do so for a moment,
// while the lease changes hands, they decide the same from the same facts.
//
// It signs nothing and makes no requests. Without it, kubectl certificate approve does its work.
//
// Sources: the Kubernetes API, certificates.k8s.io/v1 and authorization.k8s.io/v1.
package approver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

// Name is the approver's name as a field manager and a source of events.
const Name = "node-cert-controller-approver"

// lease is the name of the Lease, which all controllers of the binary share.
const lease = "node-cert-controller"

// Options are the choices of an administrator.
type Options struct {
	Policy verdict.Policy
	// Listed says whether the administrator's list of nodes holds the name, for machines that are not
	// Nodes, or not yet. An error leaves requests pending.
	Listed func(node string) (bool, error)
	// Machines also admits nodes for which there is a Machine of OpenShift.
	Machines bool
	// Namespace holds the Lease, and Replica is how this process is called in it.
	Namespace, Replica string
	// Lease is how long a replica that fell silent still counts as the leader.
	Lease time.Duration
	Log   *zap.Logger
	// Health is told what this replica does.
	Health *Health
}

// Run works until ctx ends. It fails only if it cannot begin: an API server that is away is waited for.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	to, voice, err := connect(config)
	if err != nil {
		return fmt.Errorf("making a client: %v", err)
	}
	client := to.typed
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typed.EventSinkImpl{Interface: voice.CoreV1().Events("")})
	var working sync.Mutex
	elector := leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  meta.ObjectMeta{Namespace: o.Namespace, Name: lease},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.Replica},
		},
		LeaseDuration: o.Lease, RenewDeadline: o.Lease * 2 / 3, RetryPeriod: o.Lease * 2 / 15,
		ReleaseOnCancel: true,
		Name:            lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				working.Lock() // an earlier term may still be finishing a request
				defer working.Unlock()
				o.Log.Info("leading", zap.String("replica", o.Replica))
				newController(to, broadcaster.NewRecorder(scheme.Scheme, core.EventSource{Component: Name}), o).run(ctx)
			},
			OnStoppedLeading: func() {
				o.Health.leads(false)
				o.Log.Info("not leading", zap.String("replica", o.Replica))
			},
			OnNewLeader: func(replica string) { o.Health.leads(replica == o.Replica) },
		},
	}
	defer working.Lock() // no request is cut off by the end of the process
	for ctx.Err() == nil {
		e, err := leaderelection.NewLeaderElector(elector)
		if err != nil {
			return fmt.Errorf("preparing the election of a leader: %v", err)
		}
		e.Run(ctx)
	}
	return nil
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
