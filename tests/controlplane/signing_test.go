// SPDX-License-Identifier: Apache-2.0

//go:build real

package controlplane_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// anonymous trusts the plane's server and has no identity.
func anonymous(p *controlplane.Plane) *http.Client {
	transport := p.AdminClient().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = nil
	return &http.Client{Transport: transport}
}

func TestABootstrapTokenAuthenticates(t *testing.T) {
	p := start(t, controlplane.Options{})
	must.Do(t, p.Apply(t.Context(), []byte(`
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true"}
`)))
	for token, want := range map[string]string{
		"abcdef.0123456789abcdef": `"username":"system:bootstrap:abcdef"`,
		"abcdef.fedcba9876543210": `"code":401`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			p.URL()+"/apis/authentication.k8s.io/v1/selfsubjectreviews",
			strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`))
		must.Do(t, err)
		req.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
		resp, err := anonymous(p).Do(req)
		must.Do(t, err)
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		must.Do(t, err)
		if !strings.Contains(strings.ReplaceAll(string(answer), `": `, `":`), want) {
			t.Errorf("the answer to a token is %s, want %s in it", answer, want)
		}
	}
}

func TestAnApprovedRequestIsSigned(t *testing.T) {
	p := start(t, controlplane.Options{})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: agentUser, Organization: []string{agentGroup}}}, key)
	must.Do(t, err)
	request, err := json.Marshal(map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": "test"},
		"spec": map[string]any{
			"request":    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			"signerName": "kubernetes.io/kube-apiserver-client",
			"usages":     []string{"digital signature", "client auth"},
		},
	})
	must.Do(t, err)
	must.Do(t, p.Apply(t.Context(), request))
	_, err = p.Kubectl(t.Context(), "certificate", "approve", "test")
	must.Do(t, err)
	_, err = p.Kubectl(t.Context(), "wait", "csr/test", "--for=jsonpath={.status.certificate}", "--timeout=30s")
	must.Do(t, err)
}
