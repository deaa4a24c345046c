// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

// token is the time from the start of an agent that has a token and nothing else to its first file. Each
// start is that of another node with a token of its own, no state and no files, by systemd, the writer's
// start included. The baseline asks for a certificate in this process, looks for it every 5 ms and reads the
// object with it: what the API server, the approver and the signer take.
func token(ctx context.Context, e *env, p plan, t *figures.Table) error {
	if err := e.identify(ctx); err != nil {
		return err
	}
	s := newTokens(e)
	times := map[string]figures.Samples{}
	for i := range p.tokens {
		id := fmt.Sprintf("tok%03d", i)
		took, err := s.once(ctx, "bench-"+id, id)
		if err != nil {
			return fmt.Errorf("the start with the token %s: %w", id, err)
		}
		times["agent"] = append(times["agent"], took)
		if took, err = s.baseline(ctx, "baseline-"+id, id); err != nil {
			return fmt.Errorf("the baseline with the token %s: %w", id, err)
		}
		times["baseline"] = append(times["baseline"], took)
	}
	t.Compare("token -> first file", times, nil)
	t.Judge("  agent, p50", times["agent"].Milliseconds(.5), 1500, "ms")
	t.Judge("  agent, p99", times["agent"].Milliseconds(.99), 3000, "ms")
	return nil
}

// tokens start the agent of the environment's host as that of another node, again and again.
type tokens struct {
	*env
	sweep []string // removes what an agent leaves, but for directories, which are watched
}

func newTokens(e *env) *tokens {
	script := "rm -rf /var/lib/node-cert-agent/* /run/node-cert-agent/status.json"
	for place := range controllerconfig.Files(e.arms[1].content.Spec) {
		script += " " + place
	}
	return &tokens{e, []string{"sh", "-c", script}}
}

// prepare makes a node and a token, and a host that has nothing else.
func (s *tokens) prepare(ctx context.Context, node, id string) error {
	if _, err := s.Host.Run(ctx, "systemctl", "stop", agentUnit, writerUnit); err != nil {
		return err
	}
	if err := s.admit(node); err != nil {
		return err
	}
	if err := s.MakeToken(ctx, id); err != nil {
		return err
	}
	if _, err := s.Host.Run(ctx, s.sweep...); err != nil {
		return err
	}
	if err := s.Host.PutFile(cluster.Fragment, host.File{Data: []byte(config + "node: {name: " + node +
		"}\n")}); err != nil {
		return err
	}
	return s.PutToken("10-"+id, id)
}

// start starts the agent and waits until all files are there; it returns when the first was.
func (s *tokens) start(ctx context.Context) (first time.Time, err error) {
	s.observer.drain()
	if _, err := s.Host.Run(ctx, "systemctl", "start", "--no-block", agentUnit); err != nil {
		return first, err
	}
	first, _, err = s.await(ctx, s.arms[1].want(s.arms[1].content.Spec))
	return first, err
}

func (s *tokens) once(ctx context.Context, node, id string) (time.Duration, error) {
	if err := s.prepare(ctx, node, id); err != nil {
		return 0, err
	}
	pause(ctx, shortPause)
	began := time.Now()
	first, err := s.start(ctx)
	return first.Sub(began), err
}

const requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// baseline is the least that leads from a token to the object.
func (s *tokens) baseline(ctx context.Context, node, id string) (time.Duration, error) {
	if err := s.admit(node); err != nil {
		return 0, err
	}
	began := time.Now()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return 0, err
	}
	name, body, err := request(node, key)
	if err != nil {
		return 0, err
	}
	asking := s.caller(tls.Certificate{})
	asking.bearer = id + "." + cluster.TokenSecret
	defer asking.CloseIdleConnections()
	if _, err := asking.ask(ctx, http.MethodPost, requestsPath, body); err != nil {
		return 0, err
	}
	var issued struct{ Status struct{ Certificate []byte } }
	for len(issued.Status.Certificate) == 0 {
		pause(ctx, 5*time.Millisecond)
		answer, err := asking.ask(ctx, http.MethodGet, requestsPath+"/"+name, nil)
		if err == nil {
			err = json.Unmarshal(answer, &issued)
		}
		if err != nil {
			return 0, err
		}
	}
	block, _ := pem.Decode(issued.Status.Certificate)
	known := s.caller(tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key})
	defer known.CloseIdleConnections()
	_, err = known.ask(ctx, http.MethodGet, controllerconfig.OpenShift.Path()+"/"+controllerconfig.Name, nil)
	return time.Since(began), err
}

// request is name and body of a request for a node's certificate.
func request(node string, key *ecdsa.PrivateKey) (name string, body []byte, err error) {
	content, err := csr.Build(node, key, rand.Reader)
	if err != nil {
		return "", nil, err
	}
	checked, err := csr.Check(content)
	if err != nil {
		return "", nil, err
	}
	const week = 7 * 24 * 3600
	name = csr.Name(checked, csr.Signer, csr.Usages(), week)
	body, err = json.Marshal(map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{"request": content, "signerName": csr.Signer, "usages": csr.Usages(),
			"expirationSeconds": week}})
	return name, body, err
}

// caller asks one API server, with a certificate or a token.
type caller struct {
	*http.Client
	url, bearer string
}

func (s *tokens) caller(pair tls.Certificate) caller {
	transport := s.Plane.AdminClient().Transport.(*http.Transport).Clone()
	if transport.TLSClientConfig.Certificates = nil; pair.PrivateKey != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return caller{Client: &http.Client{Transport: transport}, url: s.Plane.URL()}
}

func (c caller) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s %.300s", method, path, res.Status, answer)
	}
	return answer, err
}
