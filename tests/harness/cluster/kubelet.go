// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const (
	// Kubelet is the unit of a real kubelet, which has KubeletCA for its clientCAFile and no API server.
	Kubelet = "kubelet.service"
	// KubeletAddress is where it listens on the host.
	KubeletAddress = "127.0.0.1:10250"
)

// kubeletUnit shows the kubelet three settings of the kernel as it would make them, since it must not
// touch those of the machine, and no kernel messages. The start ends when the kubelet says that it is
// ready.
const kubeletUnit = `[Unit]
Requires=containerd.service
After=containerd.service
[Service]
Type=notify
NotifyAccess=main
BindReadOnlyPaths=/etc/kubelet/one:/proc/sys/vm/overcommit_memory /etc/kubelet/ten:/proc/sys/kernel/panic
BindReadOnlyPaths=/etc/kubelet/one:/proc/sys/kernel/panic_on_oops /dev/null:/dev/kmsg
ExecStart=/usr/local/bin/kubelet --config /etc/kubelet/config.yaml
`

// kubeletConfig wants no cgroup of its own: the test host has no controllers to give.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
healthzBindAddress: 127.0.0.1
readOnlyPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: ` + KubeletCA + `}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
`

// containerdConfig asks for nothing that a container may not do. No pod is ever run.
const containerdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
`

// withKubelet adds a kubelet to a host, which is not started: it needs KubeletCA to be there.
func withKubelet(ctx context.Context, o *host.Options, progress io.Writer) error {
	binaries, err := controlplane.Build(ctx, progress)
	if err != nil {
		return err
	}
	file, err := filepath.EvalSymlinks(binaries.Kubelet())
	if err != nil {
		return err
	}
	o.Nspawn = append(o.Nspawn, "--bind-ro="+file+":/usr/local/bin/kubelet")
	for p, text := range map[string]string{
		"/etc/systemd/system/" + Kubelet: kubeletUnit,
		"/etc/kubelet/config.yaml":       kubeletConfig,
		"/etc/kubelet/one":               "1\n",
		"/etc/kubelet/ten":               "10\n",
		"/etc/containerd/config.toml":    containerdConfig,
	} {
		o.Files[p] = host.File{Data: []byte(text)}
	}
	return nil
}

// Ask makes one HTTPS request to a server of the host as the owner of a client certificate, on a
// connection of its own, and returns the status code. Whose certificate the server shows does not
// matter.
func (c *Cluster) Ask(ctx context.Context, address, path string, as testpki.Pair) (int, error) {
	pair := as.TLS()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Host.Dial(ctx, address) },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, //nolint:gosec // see above
			// Not Certificates: of these a client sends only what the server announces to accept, and a
			// kubelet may accept a CA for a minute before it announces it.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }},
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		return 0, err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Body.Close()
}
