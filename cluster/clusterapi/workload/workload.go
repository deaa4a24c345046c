// SPDX-License-Identifier: Apache-2.0

package workload

import (
	gocontext "context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

// maxAnswer, in bytes, is more than etcd stores of an object.
const maxAnswer = 2 << 20

// ErrUnreadable is an answer that is no state of the node. The API server takes dates that are none, so the node alone
// can cause it, and it says nothing about the others.
var ErrUnreadable = errors.New("its NodeCertificateState cannot be read")

// Cluster is one that can be asked. Close it after use.
type Cluster struct{ conn *apiserver.Conn }

// Open reads a kubeconfig and connects to nothing yet. An error says what of it is refused, and quotes nothing.
func Open(kubeconfig []byte) (*Cluster, error) {
	config, err := parse(kubeconfig)
	if err != nil {
		return nil, err
	}
	conn, err := config.Open()
	if err != nil {
		return nil, errors.New("has a client certificate or a key that cannot be used") // the library's error may quote it
	}
	return &Cluster{conn}, nil
}

// Close ends every connection.
func (c *Cluster) Close() { c.conn.Close() }

// State is the NodeCertificateState of a node, nil if there is none, also where the kind is not known. An error is
// ErrUnreadable, or one that asking again may end.
func (c *Cluster) State(ctx gocontext.Context, node string) (*v1alpha1.NodeCertificateState, error) {
	at := c.conn.Server().JoinPath("apis", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version,
		"nodecertificatestates", url.PathEscape(node))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking about %s: its name cannot be asked for", printable.Text(node))
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.conn.HTTPClient().Do(req)
	if err != nil {
		if refused, ok := errors.AsType[*url.Error](err); ok {
			err = refused.Err // without the address, which the caller's log has no use for
		}
		return nil, fmt.Errorf("asking the workload cluster: %s", printable.Text(err.Error()))
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, nil
	default:
		return nil, fmt.Errorf("asking the workload cluster: it answers %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("reading the workload cluster's answer: %s", printable.Text(err.Error()))
	}
	var s v1alpha1.NodeCertificateState
	if len(body) > maxAnswer || json.Unmarshal(body, &s) != nil || s.Name != node {
		return nil, ErrUnreadable
	}
	return &s, nil
}
