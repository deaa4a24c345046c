// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// generation is one identity: a certificate with its key, and the cluster where it is valid. One file
// holds all of it, so that no crash can part what belongs together.
type generation struct {
	leaf *x509.Certificate
	// cert and key are PEM.
	cert []byte
	key  secret.Bytes
	generationNotes
}

// generationNotes are what a certificate does not say of itself.
type generationNotes struct {
	Cluster apiserver.Cluster `json:"cluster"`
	// Received is when the certificate came, by this host's clock.
	Received time.Time `json:"received"`
	// Credential is the digest of the bootstrap file that it was got with, until that is consumed.
	Credential plan.Digest `json:"credential,omitzero"`
	// Origin is the last bootstrap file that led here, consumed or not.
	Origin bootstrap.ID `json:"origin,omitzero"`
}

// config is how to speak as this generation.
func (g *generation) config() (apiserver.Config, error) {
	c, err := g.Cluster.Config(g.cert, g.key.Reveal())
	if g.leaf != nil {
		c.NotBefore = g.leaf.NotBefore
	}
	return c, err
}

// Types of the PEM blocks that are ours alone. Tools that look for certificates and keys pass over them.
const (
	notesBlock   = "NODE-CERT-AGENT IDENTITY"
	requestBlock = "NODE-CERT-AGENT REQUEST"
)

// encode is the content of identity.pem.
func (g *generation) encode() ([]byte, error) {
	notes, err := json.Marshal(g.generationNotes)
	if err != nil {
		return nil, fmt.Errorf("encoding the identity: %v", err)
	}
	tail := pem.EncodeToMemory(&pem.Block{Type: notesBlock, Bytes: notes})
	return slices.Concat(bytes.TrimSpace(g.cert), []byte("\n"), g.key.Reveal(), tail), nil
}

// decodeGeneration reads identity.pem and makes sure that its parts belong together and to this node.
func decodeGeneration(data []byte, node string) (*generation, error) {
	blocks, err := split(data)
	if err != nil {
		return nil, err
	}
	g := &generation{cert: blocks["CERTIFICATE"], key: secret.New(blocks["PRIVATE KEY"])}
	notes, _ := pem.Decode(blocks[notesBlock])
	if notes == nil || json.Unmarshal(notes.Bytes, &g.generationNotes) != nil {
		return nil, errors.New("does not say which cluster it is for")
	}
	if _, err := g.Cluster.Config(nil, nil); err != nil {
		return nil, err
	}
	return g, g.check(node)
}

// check reads the certificate and compares it with the key and the node.
func (g *generation) check(node string) error {
	pair, err := tls.X509KeyPair(g.cert, g.key.Reveal())
	if err != nil {
		return errors.New("certificate and key are damaged or do not belong together")
	}
	g.leaf = pair.Leaf
	s := g.leaf.Subject
	switch {
	case s.CommonName != csr.User(node):
		return fmt.Errorf("the certificate is for %.128q, not for this node", s.CommonName)
	case !slices.Equal(s.Organization, []string{csr.Group}):
		return fmt.Errorf("the certificate has the organizations %.128q, want %s", s.Organization, csr.Group)
	case !slices.Contains(g.leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return errors.New("the certificate is not for client authentication")
	}
	return nil
}

// split sorts the PEM blocks by type; blocks of one type stay together. What is cut off or does not
// decode is an error, because encoding/pem would pass over it without a word.
func split(data []byte) (map[string][]byte, error) {
	blocks := make(map[string][]byte)
	for rest := data; len(bytes.TrimSpace(rest)) > 0; {
		var b *pem.Block
		before := rest
		if b, rest = pem.Decode(rest); b == nil || bytes.Count(before[:len(before)-len(rest)], []byte("-----BEGIN")) != 1 {
			return nil, errors.New("is cut off or damaged")
		}
		blocks[b.Type] = append(blocks[b.Type], pem.EncodeToMemory(b)...)
	}
	if len(blocks) == 0 {
		return nil, errors.New("is empty")
	}
	return blocks, nil
}

// pending is a key that asks for a certificate. It is durable before the request exists, so that a
// killed agent finds its request again.
type pending struct {
	key *ecdsa.PrivateKey
	requestNotes
}

// requestNotes are what, beside the key, decides the name of the request.
type requestNotes struct {
	Node              string `json:"node"`
	ExpirationSeconds int32  `json:"expirationSeconds"`
}

func (p *pending) encode() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("encoding the pending key: %v", err)
	}
	notes, err := json.Marshal(p.requestNotes)
	if err != nil {
		return nil, fmt.Errorf("encoding the pending request: %v", err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: notes})...), nil
}

func decodePending(data []byte, node string) (*pending, error) {
	blocks, err := split(data)
	if err != nil {
		return nil, err
	}
	p := &pending{}
	notes, _ := pem.Decode(blocks[requestBlock])
	key, _ := pem.Decode(blocks["PRIVATE KEY"])
	if notes == nil || key == nil || json.Unmarshal(notes.Bytes, &p.requestNotes) != nil {
		return nil, errors.New("is not what we wrote")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(key.Bytes)
	if err != nil {
		return nil, errors.New("holds no key")
	}
	var ok bool
	if p.key, ok = parsed.(*ecdsa.PrivateKey); !ok {
		return nil, errors.New("holds a key of another kind")
	}
	if p.Node != node {
		return nil, fmt.Errorf("is for the node %.64q", p.Node)
	}
	return p, nil
}

// private is the key, to ask with once more.
func (g *generation) private() (*ecdsa.PrivateKey, error) {
	pair, err := tls.X509KeyPair(g.cert, g.key.Reveal())
	if err != nil {
		return nil, errors.New("certificate and key do not belong together")
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key is of another kind")
	}
	return key, nil
}

// answers reports whether the certificate was issued for this key.
func (g *generation) answers(p *pending) bool {
	public, ok := g.leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(p.key.Public())
}
