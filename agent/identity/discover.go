// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/transport"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
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

// learn looks for the pinned CAs of a cluster whose server cannot be verified with what is known, and
// puts them in the place of those that pins had found before. It is an error if there are none, or no
// others. They verify the connections that follow; this one learns nothing else, and carries nothing.
func (k *Keeper) learn(ctx context.Context, c *cluster) error {
	presented, err := k.api.look(ctx, *c)
	if err != nil {
		return fmt.Errorf("looking for pinned CAs: %v", err)
	}
	cas, leaf := k.pins.keep(presented)
	found := encodePEM(cas)
	switch {
	case len(cas) == 0 && leaf:
		return errLeafPin
	case len(cas) == 0:
		return errNoPin
	case bytes.Equal(found, c.Pinned):
		return errors.New("and the pinned CAs do not verify it either")
	}
	c.Pinned = found
	k.tell(audit.CAPinned, "a CA with a pinned key is trusted for "+c.Server, audit.Field{Name: audit.CertsAdded, Value: fingerprints(cas)})
	return nil
}

func fingerprints(certs []*x509.Certificate) string {
	all := make([]string, len(certs))
	for i, c := range certs {
		sum := sha256.Sum256(c.Raw)
		all[i] = pinPrefix + hex.EncodeToString(sum[:])
	}
	return strings.Join(all, " ")
}

// look asks a server that it does not verify, as nobody, for certificates: those in cluster-info, and
// those that it presents. Nothing that is found is believed here.
func (p api) look(ctx context.Context, c cluster) (found []*x509.Certificate, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conf, err := c.config()
	if err != nil {
		return nil, err
	}
	conf.dial, conf.pinned, conf.transport.TLS = p.dial, nil, transport.TLSConfig{Insecure: true, ServerName: c.ServerName}
	l, err := newLink(conf)
	if err != nil {
		return nil, err
	}
	defer l.close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.server.JoinPath(clusterInfoPath).String(), nil)
	if err != nil {
		return nil, err
	}
	res, err := newClient(l.rt).Do(req)
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
