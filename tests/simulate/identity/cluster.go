// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const (
	node = "worker-1"
	us   = "node-cert-agent:node:" + node
)

// What the approver and the signer of a cluster do.
const (
	signs     = "signs"
	away      = "away"
	denies    = "denies"
	nonsense  = "issues nonsense"
	otherName = "issues another name"
	unknownCA = "issues what no server knows"
)

// cluster is an API server with what stands behind it. Only env changes its fields, under its lock.
type cluster struct {
	w        *env
	name     string
	listener *listener
	server   *http.Server

	serving  *testpki.Authority
	present  tls.Certificate
	issuer   *testpki.Authority
	trusted  []*testpki.Authority // whose client certificates are known, the issuer among them
	revoked  map[string]bool      // serial numbers
	tokens   map[string]bool      // those that work
	requests map[string]*request
	serial   int64

	approver string
	delay    time.Duration // until it decides
	forbids  bool          // RBAC lets no agent make requests
	info     bool          // cluster-info is there for everybody
	down     bool
	impostor *tls.Certificate // who answers here is somebody else
	cross    bool             // whom another cluster has issued a server certificate
	faults   map[string]fault
	hint     string // the annotation on its object
}

// fault is how calls of one kind fail: every n-th of them does not.
type fault struct {
	status int // 0: the connection ends; 1: no answer comes
	every  int
	calls  int
}

// request is a CertificateSigningRequest.
type request struct {
	Metadata struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"metadata"`
	Spec struct {
		Request           []byte   `json:"request"`
		SignerName        string   `json:"signerName"`
		Usages            []string `json:"usages"`
		ExpirationSeconds int32    `json:"expirationSeconds"`
	} `json:"spec"`
	Status struct {
		Conditions  []condition `json:"conditions,omitempty"`
		Certificate []byte      `json:"certificate,omitempty"`
	} `json:"status"`

	made time.Time
}

type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
}

const decade = 10 * 365 * 24 * time.Hour

func newCluster(w *env, name string) *cluster {
	c := &cluster{w: w, name: name, listener: newListener(name), revoked: map[string]bool{}, tokens: map[string]bool{},
		requests: map[string]*request{}, approver: signs, info: true, faults: map[string]fault{}}
	c.serve(w.authorityFrom(name+" serving", time.Now().Add(-10*time.Minute)))
	c.issueWith(w.authority(name + " clients"))
	c.server = &http.Server{Handler: c, ErrorLog: log.New(io.Discard, "", 0),
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		TLSConfig: &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			present := c.present
			if c.impostor != nil {
				present = *c.impostor
			}
			return &tls.Config{Certificates: []tls.Certificate{present}, ClientAuth: tls.RequestClientCert,
				CurvePreferences: []tls.CurveID{tls.X25519}}, nil
		}}}
	go func() { _ = c.server.ServeTLS(c.listener, "", "") }()
	return c
}

func (c *cluster) address() string { return c.name + ".test:6443" }
func (c *cluster) url() string     { return "https://" + c.address() }

// serve has the server present a certificate of that CA, with the CA in its chain.
func (c *cluster) serve(by *testpki.Authority) {
	c.serving, c.present = by, by.Issue(x509.Certificate{NotAfter: by.Cert.NotAfter, NotBefore: by.Cert.NotBefore,
		DNSNames: []string{c.name + ".test"}}).TLS()
	c.present.Certificate = append(c.present.Certificate, by.Cert.Raw)
}

func (c *cluster) issueWith(a *testpki.Authority) {
	c.issuer, c.trusted = a, append(c.trusted, a)
	c.w.home[a] = c
}

// knows reports whether the cluster takes a certificate for us now.
func (c *cluster) knows(cert *x509.Certificate) bool {
	now := time.Now()
	return slices.Contains(c.trusted, c.w.issuerOf(cert)) && !c.revoked[cert.SerialNumber.Text(16)] &&
		!now.After(cert.NotAfter) && !now.Before(cert.NotBefore)
}

// issuerOf is the authority that issued a certificate. What was found once is not computed again.
func (w *env) issuerOf(cert *x509.Certificate) *testpki.Authority {
	if a, known := w.issuers[string(cert.Raw)]; known {
		return a
	}
	for _, a := range w.authorities {
		if cert.CheckSignatureFrom(a.Cert) == nil {
			w.issuers[string(cert.Raw)] = a
		}
	}
	return w.issuers[string(cert.Raw)]
}

// who is the user behind an HTTP request, "" if the server knows none.
func (c *cluster) who(r *http.Request) string {
	if certs := r.TLS.PeerCertificates; len(certs) > 0 {
		if home := c.w.home[c.w.issuerOf(certs[0])]; home != nil && home != c && !c.w.setting.Hints {
			c.w.violate("uninvited", "the identity of %s was shown to %s, and no hint is followed", home.name, c.name)
		}
		if !c.knows(certs[0]) {
			return ""
		}
		return certs[0].Subject.CommonName
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token != "" && !strings.HasPrefix(token, c.name+"-") {
		c.w.violate("token", "%s arrived at the server of %s", token, c.name)
	}
	if c.tokens[token] {
		return "system:bootstrap:" + token
	}
	return ""
}

// kinds are the calls that may fail apart. The watch is who uses the identity.
var kinds = []string{"create", "get", "whoami", "mayask", "other", "watch"}

func kind(r *http.Request) string {
	switch base := path.Base(r.URL.Path); {
	case base == "selfsubjectreviews":
		return "whoami"
	case base == "selfsubjectaccessreviews":
		return "mayask"
	case base == "version":
		return "watch"
	case r.Method == http.MethodPost:
		return "create"
	case strings.Contains(r.URL.Path, "/certificatesigningrequests/"):
		return "get"
	}
	return "other"
}

const clusterInfo = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// ServeHTTP is the API server, or the impostor at its address.
func (c *cluster) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	status, body := c.reply(r)
	if status == 1 {
		time.Sleep(time.Minute) // the client has given up by then
	}
	if status <= 1 {
		panic(http.ErrAbortHandler)
	}
	if body == nil {
		body = map[string]any{"kind": "Status", "message": http.StatusText(status)}
	}
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(body)
}

func (c *cluster) reply(r *http.Request) (status int, body any) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	anonymous := len(r.TLS.PeerCertificates) == 0 && r.Header.Get("Authorization") == ""
	if c.impostor != nil {
		// What is published where the identity is verifies that server, whoever published it; pins are the host's.
		if !anonymous && !(c.cross && (c == c.w.present() || c.w.setting.Pins)) {
			c.w.violate("impostor", "who took the address of %s was sent a credential: %s", c.name, r.URL.Path)
		}
		if !anonymous {
			return http.StatusServiceUnavailable, nil
		}
		return http.StatusOK, map[string]any{"data": map[string]any{"kubeconfig": "certificate-authority-data: " +
			base64.StdEncoding.EncodeToString(testpki.NewCA("x"))}}
	}
	what := kind(r)
	if what == "watch" {
		return c.answer(what, r)
	}
	c.w.called(c.name + " " + what)
	if c.w.process.dies("before " + what) {
		return 0, nil
	}
	status, body = c.answer(what, r)
	if c.w.process.dies("after " + what) {
		return 0, nil
	}
	return status, body
}

// answer does what is asked for, unless it is to fail.
func (c *cluster) answer(what string, r *http.Request) (status int, body any) {
	defer func() { c.w.answered(what, r, status) }()
	if f, ok := c.faults[what]; ok {
		f.calls++
		c.faults[what] = f
		if f.calls%f.every != 0 || f.every == 1 {
			return f.status, nil
		}
	}
	who := c.who(r)
	switch {
	case r.URL.Path == clusterInfo && c.info:
		return http.StatusOK, map[string]any{"data": map[string]any{"kubeconfig": "    certificate-authority-data: " +
			base64.StdEncoding.EncodeToString(c.serving.PEM())}}
	case who == "":
		return http.StatusUnauthorized, nil
	case what == "whoami":
		for _, cert := range r.TLS.PeerCertificates {
			c.w.process.proven[cert.SerialNumber.Text(16)] = true
		}
		return http.StatusCreated, map[string]any{"status": map[string]any{"userInfo": map[string]any{"username": who}}}
	case what == "mayask":
		return http.StatusCreated, map[string]any{"status": map[string]any{"allowed": !c.forbids}}
	case what == "watch":
		return http.StatusOK, nil
	case what == "create":
		return c.create(r)
	case what == "get":
		return c.get(path.Base(r.URL.Path))
	}
	return http.StatusNotFound, map[string]any{"message": who}
}

func (c *cluster) create(r *http.Request) (int, any) {
	if c.forbids && len(r.TLS.PeerCertificates) > 0 {
		return http.StatusForbidden, nil
	}
	q := &request{made: time.Now()}
	if json.NewDecoder(r.Body).Decode(q) != nil {
		return http.StatusBadRequest, nil
	}
	c.w.asked(q)
	c.w.checkTokenUse(c, r)
	if c.requests[q.Metadata.Name] != nil {
		return http.StatusConflict, nil
	}
	c.w.creates = append(c.w.creates, time.Now())
	c.serial++
	q.Metadata.UID = fmt.Sprint(c.serial)
	c.requests[q.Metadata.Name] = q
	return http.StatusCreated, q
}

func (c *cluster) get(name string) (int, any) {
	q := c.requests[name]
	if q == nil {
		return http.StatusNotFound, nil
	}
	if len(q.Status.Conditions) == 0 && time.Since(q.made) >= c.delay {
		c.decide(q)
	}
	return http.StatusOK, q
}

// decide is the approver, and the signer after it.
func (c *cluster) decide(q *request) {
	asked := q.parse()
	subject := asked.Subject
	switch c.approver {
	case away:
		return
	case denies:
		q.Status.Conditions = []condition{{"Denied", "True", "NodeUnknown"}}
		return
	case otherName:
		subject.CommonName = "node-cert-agent:node:other"
	}
	q.Status.Conditions = []condition{{"Approved", "True", ""}}
	if q.Status.Certificate = []byte("no certificate"); c.approver != nonsense {
		q.Status.Certificate = c.issue(asked.PublicKey, subject)
	}
}

func (q *request) parse() *x509.CertificateRequest {
	block, _ := pem.Decode(q.Spec.Request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		panic(err)
	}
	return asked
}

func (c *cluster) issue(key any, subject pkix.Name) []byte {
	c.serial++
	now := time.Now()
	serial := new(big.Int).SetBytes([]byte(c.name + fmt.Sprintf("%06d", c.serial)))
	by := c.issuer
	if c.approver == unknownCA {
		by = c.w.authority("nobody")
	}
	der, err := x509.CreateCertificate(c.w.entropy, &x509.Certificate{SerialNumber: serial, Subject: subject,
		NotBefore: now.Add(-5 * time.Minute),
		NotAfter:  now.Add(c.w.setting.Life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, by.Cert, key,
		by.Key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
