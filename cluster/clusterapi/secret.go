// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/cluster/clusterapi/etcdclient"
	"github.com/node-cert-agent/node-cert-agent/renew/issue"
)

// The purposes of Secrets: the end of their names, after the Cluster's. etcdadm's CA is in two: with its key in the
// first, for those that make hosts of etcd, and without it in the second, for the control plane.
const (
	etcdClient    = "apiserver-etcd-client"
	managedEtcdCA = "managed-etcd"
	etcdCA        = "etcd"
)

// renewing is what Events about the Secret are about.
const renewing = "RenewEtcdClient"

const (
	renewed    = "EtcdClientRenewed"
	notWritten = "EtcdClientNotWritten"
)

// ofCertManager is on Secrets that cert-manager renews.
const ofCertManager = "cert-manager.io/certificate-name"

// renew renews the pair of the API servers for etcd if it is due, and gives its end; zero if the Cluster has none.
func (r *clusterAPI) renew(ctx context.Context, cluster *unstructured.Unstructured) (ends time.Time, err error) {
	s, err := r.secret(ctx, cluster, etcdClient)
	if err != nil || s == nil {
		return time.Time{}, err
	}
	old := issue.Pair{Certificate: s.Data[corev1.TLSCertKey], Key: secret.New(s.Data[corev1.TLSPrivateKeyKey])}
	leaf := etcdclient.Leaf(old.Certificate)
	if leaf != nil {
		ends = leaf.NotAfter
	}
	_, theirs := s.Annotations[ofCertManager]
	if theirs || leaf != nil && !r.options.Renew.Due(leaf, r.now()) { // and the key of a CA is not even read
		r.tell.well(cluster, renewing)
		return ends, nil
	}
	cas, err := r.authorities(ctx, cluster)
	if err != nil {
		return ends, err
	}
	next, err := r.options.Renew.Renew(old, cas, r.now(), rand.Reader)
	var refused *etcdclient.Refusal
	switch {
	case errors.As(err, &refused):
		r.tell.wrong(cluster, renewing, refused.Reason, fmt.Sprintf(
			"the pair in Secret %s, which ends at %s, is not renewed: %v", s.Name, stamp(ends), refused))
		return ends, nil
	case err != nil:
		return ends, fmt.Errorf("renewing the pair in Secret %s/%s: %v", s.Namespace, s.Name, err)
	case next == nil:
		return ends, nil
	}
	if err := r.write(ctx, cluster, s, *next); err != nil {
		return ends, err
	}
	r.tell.done(cluster, renewing, renewed, fmt.Sprintf("the pair in Secret %s ends at %s now, and not at %s; no machine "+
		"was replaced: each keeps the pair that it has until it is replaced or its host renews it", s.Name,
		stamp(next.Leaf.NotAfter), stamp(ends)))
	return next.Leaf.NotAfter, nil
}

// authorities are the CAs of etcd that there are.
func (r *clusterAPI) authorities(ctx context.Context, cluster *unstructured.Unstructured) (
	all []etcdclient.Authority, err error) {
	for _, purpose := range []string{managedEtcdCA, etcdCA} {
		ca, err := r.secret(ctx, cluster, purpose)
		if err != nil {
			return nil, err
		}
		a := etcdclient.Authority{Secret: cluster.GetName() + "-" + purpose}
		if ca != nil {
			a.Cert, a.Key = ca.Data[corev1.TLSCertKey], secret.New(ca.Data[corev1.TLSPrivateKeyKey])
		}
		all = append(all, a)
	}
	return all, nil
}

// write stores a pair at the version that was read. What anybody wrote meanwhile stays, and is looked at again.
func (r *clusterAPI) write(ctx context.Context, cluster *unstructured.Unstructured, s *corev1.Secret,
	next issue.Successor) error {
	s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey] = next.Certificate, next.Key.Reveal()
	err := r.client.Update(ctx, s, client.FieldOwner(name))
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("writing Secret %s/%s: somebody else changed it meanwhile", s.Namespace, s.Name)
	case err != nil: // its text may repeat what was sent
		r.tell.wrong(cluster, renewing, notWritten,
			fmt.Sprintf("Secret %s cannot be written: %s", s.Name, apierrors.ReasonForError(err)))
		return fmt.Errorf("writing Secret %s/%s: %s", s.Namespace, s.Name, apierrors.ReasonForError(err))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
