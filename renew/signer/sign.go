// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/tls"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// clientContext begins what a TLS 1.3 client signs, and nothing else: 64 blanks, a text and a zero (RFC 8446 4.4.3).
// The digest of the handshake follows.
var clientContext = []byte(strings.Repeat(" ", 64) + "TLS 1.3, client CertificateVerify\x00")

// sign makes the signature of a handshake with the pair that waits for proof, or, where the service renews by itself,
// with the one for etcd. It signs no digest that somebody else made: the bytes that are signed say what they are for.
func (h *handler) sign(q Handshake) ([]byte, error) {
	digest, ok := bytes.CutPrefix(q.Message, clientContext)
	if !ok || len(digest) != crypto.SHA256.Size() && len(digest) != crypto.SHA384.Size() {
		return nil, refuse("what is to be signed is not the end of a TLS 1.3 client's handshake")
	}
	if !h.signatures.Allow(1) {
		return nil, &Error{Failed, "more handshakes than any host needs; this one is for later"}
	}
	f, err := h.Host.Find(q.Pair)
	if err != nil {
		return nil, refuse("%v", err)
	}
	if f.Role == pair.Server {
		return nil, refuse("%s is not a client's", f.Name)
	}
	if h.Replacer == nil || h.Replacer.Waiting().Pair.ID != FilesOf(f).ID && !h.isForEtcd(f) {
		return nil, refuse("%s does not wait for proof", f.Name)
	}
	held, err := h.Replacer.Read(FilesOf(f))
	if err != nil {
		return nil, err
	}
	loaded, err := tls.X509KeyPair(held.Certificate, held.Key.Reveal())
	if err != nil {
		return nil, &Error{Failed, f.Name + ": certificate and key do not belong together"}
	}
	var opts crypto.SignerOpts = crypto.Hash(q.Hash)
	if q.Hash != 0 && !crypto.Hash(q.Hash).Available() {
		return nil, refuse("there is no such hash function")
	}
	if _, ok := loaded.PrivateKey.(*rsa.PrivateKey); ok {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.Hash(q.Hash)}
	}
	return crypto.SignMessage(loaded.PrivateKey.(crypto.Signer), h.Random, q.Message, opts)
}
