// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// Files in the state directory, whose names are part of the host's contract.
const (
	currentFile  = "identity.pem"
	previousFile = "identity.previous.pem"
	pendingFile  = "pending/key.pem"
)

// env is everything around the keeper. What happens in it is the walker's doing; its lock is for the servers
// and the process, which have goroutines of their own.
type env struct {
	mu       sync.Mutex
	setting  Setting
	seed     uint64
	entropy  io.Reader
	began    time.Time
	quiet    func() // waits until all goroutines are blocked
	clusters map[string]*cluster
	impostor tls.Certificate
	pins     []string

	authorities []*testpki.Authority
	home        map[*testpki.Authority]*cluster // whose clients an authority issues for
	issuers     map[string]*testpki.Authority   // of certificates, by their content

	dir    map[string][]byte
	full   bool // the state directory takes nothing
	files  []file
	cas    map[string][]byte // those that the file with a token states
	put    int               // files ever put
	closed bool              // nobody gives files out
	stuck  bool              // nothing can be consumed
	offset time.Duration

	process *process
	lives   int
	instant time.Time // of the last contact
	at      int       // contacts at that instant
	refused time.Time // since when the identity on disk was refused, without a success since then
	served  string    // the file that led to an identity last
	last    time.Time // when something last happened to the agent
	calls   []time.Time
	creates []time.Time

	violation *Violation
	telling   bool
	told      []string
	counts    Counts
}

// file is a bootstrap file.
type file struct {
	bootstrap.Credential
	token string
}

// Violation is a promise that was not kept.
type Violation struct {
	Kind string // one word, the same for the same promise
	Fact string
}

func (v Violation) String() string { return v.Kind + ": " + v.Fact }

// Counts say how much was walked.
type Counts struct{ Walks, Steps, Calls, Lives, Identities int }

// Add adds those of another walk.
func (c *Counts) Add(o Counts) {
	c.Walks, c.Steps, c.Calls, c.Lives, c.Identities = c.Walks+o.Walks, c.Steps+o.Steps, c.Calls+o.Calls, c.Lives+o.Lives,
		c.Identities+o.Identities
}

func newEnv(seed uint64, s Setting, quiet func()) *env {
	w := &env{setting: s, seed: seed, entropy: rand.Reader, began: time.Now(), quiet: quiet,
		cas: map[string][]byte{}, home: map[*testpki.Authority]*cluster{},
		dir: map[string][]byte{}, clusters: map[string]*cluster{}, issuers: map[string]*testpki.Authority{}}
	for _, name := range []string{"a", "b"} {
		c := newCluster(w, name)
		w.clusters[name] = c
		w.pins = append(w.pins, pinOf(c.serving.Cert))
	}
	stranger := w.authority("stranger")
	w.impostor = stranger.Issue(x509.Certificate{NotAfter: stranger.Cert.NotAfter,
		DNSNames: []string{"a.test", "b.test"}}).TLS()
	return w
}

// authority is a CA that outlives the walk.
func (w *env) authority(name string) *testpki.Authority {
	return w.authorityFrom(name, time.Now().Add(-decade))
}

func (w *env) authorityFrom(name string, begin time.Time) *testpki.Authority {
	a := testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: begin,
		NotAfter: time.Now().Add(decade)}, testpki.ECDSA)
	w.authorities = append(w.authorities, a)
	return a
}

func pinOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// end stops everything.
func (w *env) end() {
	w.process.reap()
	for _, c := range w.clusters {
		_ = c.server.Close()
	}
	w.counts.Walks, w.counts.Lives = 1, w.lives
}

// requestName is drawn from the key, which is another in each telling.
var requestName = regexp.MustCompile(`node-cert-agent-[0-9a-z]{32}`)

// logf adds a line to the story. The lock may be held.
func (w *env) logf(format string, args ...any) {
	if w.telling {
		at := time.Since(w.began).Round(time.Millisecond)
		w.told = append(w.told, fmt.Sprintf("%14v  ", at)+requestName.ReplaceAllString(fmt.Sprintf(format, args...),
			"the request"))
	}
}

// violate notes the first promise that was broken.
func (w *env) violate(kind, format string, args ...any) {
	if w.violation == nil {
		w.violation = &Violation{kind, fmt.Sprintf(format, args...)}
		w.logf("VIOLATION %s", w.violation)
	}
}

// event is something that makes the agent ask more often for a while.
func (w *env) event() { w.last = time.Now() }

// called counts a call of the agent.
func (w *env) called(what string) {
	w.calls = append(w.calls, time.Now())
	w.counts.Calls++
	w.logf("call %s", what)
}

// asked holds that a key is durable before a request for it exists.
func (w *env) asked(q *request) {
	for rest := w.dir[pendingFile]; len(rest) > 0; {
		block, more := pem.Decode(rest)
		if block == nil {
			break
		}
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil &&
			key.(*ecdsa.PrivateKey).PublicKey.Equal(q.parse().PublicKey) {
			return
		}
		rest = more
	}
	w.violate("key", "a request was made with a key that is not in %s", pendingFile)
}

// generation is what identity.pem says.
type generation struct {
	cert       *x509.Certificate
	server     string
	stated     string // the CAs that the cluster was stated with, in PEM
	known      string // the CAs by which the server is verified, in PEM
	credential string // the digest of the file that is still to be consumed
}

// generationIn reads an identity; nil if it is none.
func generationIn(data []byte) *generation {
	g := &generation{}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE":
			g.cert, _ = x509.ParseCertificate(block.Bytes)
		case "NODE-CERT-AGENT IDENTITY":
			var notes struct {
				Cluster struct {
					Server                                string
					CertificateAuthority, PinnedAuthority []byte
				}
				Credential string
			}
			_ = json.Unmarshal(block.Bytes, &notes)
			g.credential = notes.Credential
			g.stated = string(notes.Cluster.CertificateAuthority)
			g.server, g.known = notes.Cluster.Server,
				string(notes.Cluster.CertificateAuthority)+string(notes.Cluster.PinnedAuthority)
		}
	}
	if g.cert == nil || g.server == "" {
		return nil
	}
	return g
}

// of is the cluster that the identity is for.
func (w *env) of(g *generation) *cluster {
	if g == nil {
		return nil
	}
	for _, c := range w.clusters {
		if c.url() == g.server {
			return c
		}
	}
	return nil
}

// works reports whether the cluster of the identity takes its certificate.
func (w *env) works(g *generation) bool {
	c := w.of(g)
	return c != nil && c.knows(g.cert) && g.cert.Subject.CommonName == us
}

// write is a write of the process.
func (w *env) write(name string, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full {
		return errFull
	}
	if name == currentFile {
		before, after := generationIn(w.dir[name]), generationIn(data)
		if w.works(before) && !w.works(after) {
			w.violate("replaced", "an identity that works was replaced by one that does not")
		}
		if before == nil || after != nil && !before.cert.Equal(after.cert) {
			w.succeeds(before)
			w.counts.Identities++
			w.logf("another identity, at %s", after.server)
		}
	}
	w.dir[name] = slices.Clone(data)
	if g := generationIn(data); name == currentFile && g != nil && g.credential != "" {
		w.served = g.credential
	}
	return nil
}

// gone judges that a file is renamed or removed by the process.
func (w *env) gone(name string) {
	if name == currentFile && w.works(generationIn(w.dir[name])) {
		w.violate("removed", "an identity that works was taken away")
	}
}

// consume is what the writer does.
func (w *env) consume(digest plan.Digest) (string, error) {
	if w.stuck || w.closed {
		return "", errFull
	}
	i := slices.IndexFunc(w.files, func(f file) bool { return f.Digest == digest })
	if i < 0 || w.setting.Keep {
		return "", nil
	}
	if g := generationIn(w.dir[currentFile]); g == nil || !w.process.proven[g.cert.SerialNumber.Text(16)] {
		w.violate("consumed", "%s was consumed, and no identity that was got with it is kept and proven", w.files[i].Name)
	}
	w.logf("consumed %s", w.files[i].Name)
	w.files = slices.Delete(w.files, i, i+1)
	return "deleted", nil
}

// bootstrap puts a file with a token for a cluster, as an administrator would; the name decides the order.
func (w *env) bootstrap(name string, c *cluster, works bool) {
	w.put++
	token := fmt.Sprintf("%s-%d", c.name, w.put)
	c.tokens[token] = works
	ca := c.serving.PEM()
	if w.put%2 == 0 && slices.Contains(w.process.pins, pinOf(c.serving.Cert)) {
		ca = nil
	}
	w.cas[token] = ca
	id := bootstrap.ID{Name: name, Digest: plan.DigestOf([]byte(token))}
	content := secret.New(kubeconfigs.Token(c.url(), ca, token))
	w.place(file{bootstrap.Credential{ID: id, Content: content}, token})
}

// place puts a file among the others, by name.
func (w *env) place(f file) {
	w.files = slices.DeleteFunc(w.files, func(o file) bool { return o.Name == f.Name })
	w.files = append(w.files, f)
	slices.SortFunc(w.files, func(a, b file) int { return strings.Compare(a.Name, b.Name) })
}
