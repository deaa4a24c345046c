// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/identity"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

const (
	week     = 7 * 24 * 3600
	renewals = 5
	// pending are the requests that wait meanwhile.
	pending = 5000
)

// junk is how long the renewal of a node takes while requests of one token are pending, for nodes that do not exist. The
// baseline are renewals of other nodes before.
func junk(ctx context.Context, e *env) error {
	if e.n < 2*renewals {
		return fmt.Errorf("it takes %d nodes", 2*renewals)
	}
	before, err := e.renew(ctx, 0)
	if err != nil {
		return err
	}
	token, err := e.plane.MakeToken(ctx, controlplane.Token{ID: "junk00", Secret: "0123456789abcdef",
		Groups: csr.BootstrapGroup})
	if err != nil {
		return err
	}
	by := e.plane.Bearer(token)
	began := time.Now()
	if err := each(pending, func(i int) error {
		_, err := e.request(ctx, by, fmt.Sprintf("nowhere-%d", i))
		return err
	}); err != nil {
		return err
	}
	e.table.Note("junk: requests of one token", "%d in %.1f s", pending, time.Since(began).Seconds())
	after, err := e.renew(ctx, renewals)
	if err != nil {
		return err
	}
	e.table.Note("renewal of a node: baseline", "%v", before)
	e.table.Note("renewal of a node: while they are pending", "%v", after)
	e.table.Judge("  slowest", after.Seconds(1), 5, "s")
	e.table.Note("  pending / baseline, median", "%.2f x", after.Seconds(.5)/before.Seconds(.5))
	if err := held(ctx, e); err != nil {
		return err
	}
	_, err = e.ask(ctx, e.admin, http.MethodDelete, csrPath, asJSON, nil)
	return err
}

// renew asks for certificates as nodes of the fleet do, one after the other, and waits for each.
func (e *env) renew(ctx context.Context, first int) (took figures.Samples, err error) {
	for i := first; i < first+renewals; i++ {
		t, err := e.renewOne(ctx, nodeName(i))
		if err != nil {
			return nil, fmt.Errorf("a renewal of %s: %w", nodeName(i), err)
		}
		took = append(took, t)
	}
	return took, nil
}

func (e *env) renewOne(ctx context.Context, node string) (time.Duration, error) {
	tree, err := disk.Open(e.root(node))
	if err != nil {
		return 0, err
	}
	dir, err := tree.Directory(stateDir)
	if err != nil {
		return 0, err
	}
	id, err := identity.Load(dir, node)
	if err != nil {
		return 0, err
	}
	defer id.Close()
	began := time.Now()
	name, err := e.request(ctx, id.HTTPClient(), node)
	if err != nil {
		return 0, err
	}
	limit := began.Add(e.options.limit)
	for time.Now().Before(limit) {
		answer, err := e.ask(ctx, id.HTTPClient(), http.MethodGet, csrPath+"/"+name, asJSON, nil)
		if err != nil {
			return 0, err
		}
		var issued struct{ Status struct{ Certificate []byte } }
		if err := json.Unmarshal(answer, &issued); err != nil {
			return 0, err
		}
		if len(issued.Status.Certificate) > 0 {
			return time.Since(began), nil
		}
		pause(ctx, 10*time.Millisecond)
	}
	return 0, errors.New("no certificate in time")
}

// request sends one for a certificate of the node, with a new key.
func (e *env) request(ctx context.Context, by *http.Client, node string) (name string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	content, err := csr.Build(node, key, rand.Reader)
	if err != nil {
		return "", err
	}
	checked, err := csr.Check(content)
	if err != nil {
		return "", err
	}
	name = csr.Name(checked, csr.Signer, csr.Usages(), week)
	body, err := json.Marshal(map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{"request": content, "signerName": csr.Signer, "usages": csr.Usages(),
			"expirationSeconds": week}})
	if err != nil {
		return "", err
	}
	_, err = e.ask(ctx, by, http.MethodPost, csrPath, asJSON, body)
	return name, err
}
