// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// ports are the TCP ports of one plane on 127.0.0.1.
type ports struct{ api, etcdClient, etcdPeer, controllers int }

// url is the address of a port.
func url(port int) string { return "https://127.0.0.1:" + strconv.Itoa(port) }

// choosePorts finds ports on which nobody listens. They lie below those that the kernel gives to
// outgoing connections (ip_local_port_range, from 32768): a client that keeps trying to reach a
// server which is down would else be given the very port it dials, connect to itself and keep the
// server from coming back. Between this choice and its use a port can still be lost: see errPortTaken.
func choosePorts() (p ports, err error) {
	for _, port := range []*int{&p.api, &p.etcdClient, &p.etcdPeer, &p.controllers} {
		l, err := listenAnywhere()
		if err != nil {
			return ports{}, err
		}
		defer l.Close() // only when all are chosen, so that they differ
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

func listenAnywhere() (l net.Listener, err error) {
	for range 100 {
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("finding a free port: %v", err)
}

func (p *Plane) etcdFlags() []string {
	return append([]string{
		"--name=etcd", "--data-dir=" + p.file("etcd"), "--log-level=warn",
		"--listen-client-urls=" + url(p.ports.etcdClient), "--advertise-client-urls=" + url(p.ports.etcdClient),
		"--listen-peer-urls=" + url(p.ports.etcdPeer), "--initial-advertise-peer-urls=" + url(p.ports.etcdPeer),
		"--initial-cluster=etcd=" + url(p.ports.etcdPeer),
		"--client-cert-auth", "--trusted-ca-file=" + p.file("pki/etcd-ca.crt"),
		"--cert-file=" + p.file("pki/etcd.crt"), "--key-file=" + p.file("pki/etcd.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + p.file("pki/etcd-ca.crt"),
		"--peer-cert-file=" + p.file("pki/etcd.crt"), "--peer-key-file=" + p.file("pki/etcd.key"),
	}, p.options.EtcdArgs...)
}

func (p *Plane) apiServerFlags() []string {
	return append([]string{
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(p.ports.api),
		"--tls-cert-file=" + p.file("pki/apiserver.crt"), "--tls-private-key-file=" + p.file("pki/apiserver.key"),
		"--client-ca-file=" + p.file("pki/ca.crt"), fmt.Sprintf("--anonymous-auth=%t", p.options.Anonymous),
		"--enable-bootstrap-token-auth", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--etcd-servers=" + url(p.ports.etcdClient), "--etcd-cafile=" + p.file("pki/etcd-ca.crt"),
		"--etcd-certfile=" + p.file("pki/etcd-client.crt"), "--etcd-keyfile=" + p.file("pki/etcd-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.file("pki/service-account.crt"),
		"--service-account-signing-key-file=" + p.file("pki/service-account.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
	}, p.options.APIServerArgs...)
}

func (p *Plane) controllerManagerFlags() []string {
	return append([]string{
		"--kubeconfig=" + p.file("controller-manager.kubeconfig"), "--leader-elect=false",
		"--controllers=*,bootstrapsigner,tokencleaner",
		"--kube-api-qps=1000", "--kube-api-burst=1000", // by default it takes five seconds to make its service accounts
		"--flex-volume-plugin-dir=" + p.file("flex-volumes"), // it makes this folder, in /usr by default
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(p.ports.controllers),
		"--tls-cert-file=" + p.file("pki/controller-manager.crt"), "--tls-private-key-file=" +
			p.file("pki/controller-manager.key"),
		"--root-ca-file=" + p.file("pki/ca.crt"), "--use-service-account-credentials",
		"--service-account-private-key-file=" + p.file("pki/service-account.key"),
		"--cluster-signing-cert-file=" + p.file("pki/ca.crt"), "--cluster-signing-key-file=" + p.file("pki/ca.key"),
	}, p.options.ControllerManagerArgs...)
}
