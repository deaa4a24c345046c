// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/agent/reply"
)

const (
	// requestTimeout bounds each request of ours, those to the writer too, which may have to be started; none of them
	// is a stream.
	requestTimeout = 30 * time.Second
	// maxAnswer is far above any object that we ask for.
	maxAnswer = 1 << 20
	// maxMessage bounds, in bytes, what is quoted of a server's message.
	maxMessage = 256
)

// answer is the outcome of one request. Status 0 means that no answer came.
type answer struct {
	status int
	// reason is one line about an answer that is not a success.
	reason string
	// untrusted is set if a server answered and no known CA verifies it.
	untrusted bool
	// after is what the server asked us to wait.
	after   time.Duration
	date    time.Time
	request request
	user    string
	allowed bool
}

// request is a CertificateSigningRequest as the API has it.
type request struct {
	Request           []byte   `json:"request"`
	SignerName        string   `json:"signerName"`
	Usages            []string `json:"usages"`
	ExpirationSeconds int32    `json:"expirationSeconds"`

	name, uid   string
	conditions  []condition
	certificate []byte
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// api is the part of the Kubernetes API that identity needs. Every call goes over the given connections.
type api struct {
	clock clock.Clock
}

const requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

type metadata struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// object covers what we send and what we read of what comes back, errors included.
type object struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec,omitempty"`
	Status     json.RawMessage `json:"status,omitempty"`
	Message    string          `json:"message,omitempty"`
}

// create makes the request, under the name in r.
func (p api) create(ctx context.Context, c *apiserver.Conn, r request) answer {
	spec, err := json.Marshal(r)
	if err != nil {
		return answer{reason: err.Error()}
	}
	return p.ask(ctx, c, http.MethodPost, requestsPath, &object{
		APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest", Metadata: metadata{Name: r.name}, Spec: spec,
	})
}

// get reads the request.
func (p api) get(ctx context.Context, c *apiserver.Conn, name string) answer {
	return p.ask(ctx, c, http.MethodGet, requestsPath+"/"+name, nil)
}

// whoami asks as whom the server knows us. Every authenticated user may: system:basic-user.
func (p api) whoami(ctx context.Context, c *apiserver.Conn) answer {
	return p.ask(ctx, c, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		&object{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"})
}

// toAsk is the right to make requests for certificates.
const toAsk = `{"resourceAttributes":` +
	`{"group":"certificates.k8s.io","resource":"certificatesigningrequests","verb":"create"}}`

// mayAsk asks whether we may make requests for certificates.
func (p api) mayAsk(ctx context.Context, c *apiserver.Conn) answer {
	return p.ask(ctx, c, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		&object{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview", Spec: json.RawMessage(toAsk)})
}

// ask sends one request and reads the whole answer.
func (p api) ask(ctx context.Context, c *apiserver.Conn, method, path string, body *object) answer {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return answer{reason: err.Error()}
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Server().JoinPath(path).String(), content)
	if err != nil {
		return answer{reason: err.Error()}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	res, err := c.HTTPClient().Do(req)
	if err != nil {
		return answer{reason: reply.Fact(err), untrusted: apiserver.Untrusted(err)}
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return answer{reason: reply.Fact(err)}
	}
	return p.read(res, data)
}

// read makes an answer of what came.
func (p api) read(res *http.Response, data []byte) answer {
	a := answer{status: res.StatusCode, after: reply.RetryAfter(res.Header, p.clock.Now())}
	a.date, _ = http.ParseTime(res.Header.Get("Date"))
	var o object
	malformed := json.Unmarshal(data, &o)
	if res.StatusCode >= 300 {
		a.reason = fmt.Sprintf("the server answered %d %s", res.StatusCode, http.StatusText(res.StatusCode))
		if malformed == nil && o.Message != "" {
			a.reason += ": " + o.Message[:min(len(o.Message), maxMessage)]
		}
		return a
	}
	a.request.name, a.request.uid = o.Metadata.Name, o.Metadata.UID
	var status struct {
		Conditions  []condition `json:"conditions"`
		Certificate []byte      `json:"certificate"`
		Allowed     bool        `json:"allowed"`
		UserInfo    struct {
			Username string `json:"username"`
		} `json:"userInfo"`
	}
	if malformed == nil && len(o.Status) > 0 {
		malformed = json.Unmarshal(o.Status, &status)
	}
	if malformed == nil && len(o.Spec) > 0 {
		malformed = json.Unmarshal(o.Spec, &a.request)
	}
	if malformed != nil {
		return answer{reason: "the server's answer is not the JSON that was asked for"}
	}
	a.request.conditions, a.request.certificate = status.Conditions, status.Certificate
	a.user, a.allowed = status.UserInfo.Username, status.Allowed
	return a
}

// request is what asks for a certificate for a pending key, under the name that is its digest.
func (p *pending) request(pem []byte) (request, error) {
	asked, err := csr.Check(pem)
	if err != nil {
		return request{}, err
	}
	return request{Request: pem, SignerName: csr.Signer, Usages: csr.Usages(), ExpirationSeconds: p.ExpirationSeconds,
		name: csr.Name(asked, csr.Signer, csr.Usages(), p.ExpirationSeconds)}, nil
}

// same reports whether the request found under our name is what we asked for. The name of a foreign
// one would be its own digest, so this can only fail if somebody took the name on purpose.
func (r request) same(found request) bool {
	theirs, err := csr.Check(found.Request)
	return err == nil && csr.Name(theirs, found.SignerName, found.Usages, found.ExpirationSeconds) == r.name
}
