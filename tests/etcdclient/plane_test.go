// SPDX-License-Identifier: Apache-2.0

package etcdclient

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// start is a real etcd with these further flags.
func start(t *testing.T, flags ...string) *controlplane.Plane {
	t.Helper()
	t.Chdir("../..") // the servers are those of the repository's main module
	p, err := controlplane.Start(t.Context(), controlplane.Options{APIServerOff: true, EtcdArgs: flags, Progress: os.Stderr})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// connect is our client of the etcd and theirs.
func connect(t *testing.T, p *controlplane.Plane) (ours *etcd.Client, theirs *clientv3.Client) {
	t.Helper()
	config, err := credentials(p.Dir())
	must.Do(t, err)
	ours, err = etcd.New(p.EtcdURL(), config, 10*time.Second)
	must.Do(t, err)
	t.Cleanup(ours.Close)
	theirs, err = clientv3.New(clientv3.Config{Endpoints: []string{p.EtcdURL()}, TLS: config, DialTimeout: 10 * time.Second})
	must.Do(t, err)
	t.Cleanup(func() { _ = theirs.Close() })
	return ours, theirs
}

// credentials are those of the API server in the state folder of a plane.
func credentials(dir string) (*tls.Config, error) {
	pki := filepath.Join(dir, "pki")
	pair, err := tls.LoadX509KeyPair(filepath.Join(pki, "etcd-client.crt"), filepath.Join(pki, "etcd-client.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(pki, "etcd-ca.crt"))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
	config.RootCAs.AppendCertsFromPEM(ca)
	return config, nil
}
