// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/transport"

	"github.com/node-cert-agent/node-cert-agent/agent/reply"
)

// clusterInfoPath is where kubeadm publishes a cluster's CAs for everybody, credentials or not.
const clusterInfoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// maxClusterInfo, in bytes, bounds what is read of an answer of a server that nothing verifies yet. A CA is about
// one thousand bytes, and a bundle of many does not belong there.
const maxClusterInfo = 64 << 10

// errNoPin says that nobody who answered has a pinned key.
var errNoPin = errors.New("neither cluster-info nor the chain that the server presents holds a CA with a pinned key")

// errLeafPin says that a pin was made from the wrong certificate.
var errLeafPin = errors.New("a pin fits a certificate that is no CA; pin the CA that signs it")

// Discover looks for the pinned CAs of a cluster whose server cannot be verified with what is known, and gives them
// parsed and in PEM. The caller puts them in the place of c.Pinned, where they verify the connections that follow;
// this one learns nothing else, and carries nothing. It is an error if there are none, or no others than those. The
// caller bounds it by ctx; dial is the system's if nil.
func (p Pins) Discover(ctx context.Context, c Cluster, dial DialFunc) (cas []*x509.Certificate, pem []byte, err error) {
	presented, err := ask(ctx, c, dial)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for pinned CAs: %v", err)
	}
	cas, leaf := p.pinned(presented)
	pem = encodePEM(cas)
	switch {
	case len(cas) == 0 && leaf:
		return nil, nil, errLeafPin
	case len(cas) == 0:
		return nil, nil, errNoPin
	case bytes.Equal(pem, c.Pinned):
		return nil, nil, errors.New("and the pinned CAs do not verify it either")
	}
	return cas, pem, nil
}

// ask asks a server that it does not verify, as nobody, for certificates: those in cluster-info, and
// those that it presents. Nothing that is found is believed here.
func ask(ctx context.Context, c Cluster, dial DialFunc) (found []*x509.Certificate, err error) {
	conf, err := c.Config(nil, nil)
	if err != nil {
		return nil, err
	}
	conf.Dial, conf.Pinned = dial, nil
	conf.transport.TLS = transport.TLSConfig{Insecure: true, ServerName: c.ServerName}
	conn, err := conf.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, conn.server.JoinPath(clusterInfoPath).String(), nil)
	if err != nil {
		return nil, err
	}
	res, err := conn.client.Do(req)
	if err != nil {
		return nil, errors.New(reply.Fact(err))
	}
	defer res.Body.Close()
	if res.TLS != nil {
		found = res.TLS.PeerCertificates
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxClusterInfo))
	if err == nil && res.StatusCode == http.StatusOK {
		found = append(authorities(clusterInfo(data)), found...)
	}
	return found, nil
}

// clusterInfo is the CAs in the kubeconfig in the ConfigMap, whichever cluster they stand beside: none of them
// counts without a pin. They are found by the name of their field, in block style, in flow style and in JSON: a tree
// of what a stranger wrote takes two hundred times its size.
func clusterInfo(data []byte) (pem []byte) {
	const field = "certificate-authority-data"
	var o struct {
		Data struct{ Kubeconfig string }
	}
	if json.Unmarshal(data, &o) != nil {
		return nil
	}
	_, rest, found := strings.Cut(o.Data.Kubeconfig, field)
	for ; found; _, rest, found = strings.Cut(rest, field) {
		value := strings.TrimLeft(rest, "\"': ")
		if end := strings.IndexAny(value, "\"' ,}\r\n"); end >= 0 {
			value = value[:end]
		}
		if ca, err := base64.StdEncoding.DecodeString(value); err == nil {
			pem = append(append(pem, ca...), '\n')
		}
	}
	return pem
}
