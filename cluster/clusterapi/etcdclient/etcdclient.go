// SPDX-License-Identifier: Apache-2.0

// Package etcdclient decides whether the pair in the Secret CLUSTER-apiserver-etcd-client is to be renewed, and makes
// its successor. With that pair the API servers of a workload cluster speak to an external etcd: Cluster API puts it on
// every new Machine of the control plane, and controllers of etcd use it themselves. Nobody else renews it.
//
// It is pure but for the random source that it is given. The successor has a new key of the same kind, the old
// certificate's subject and extensions, and no end after the CA's (renew/issue). No error holds a byte of a key.
//
// Sources: aws/etcdadm-controller controllers/certs.go (CLUSTER-managed-etcd has the CA with its key, CLUSTER-etcd the
// CA alone, and the leaf's NotBefore is the CA's); Cluster API's book, "Using external etcd".
package etcdclient

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
	"github.com/node-cert-agent/node-cert-agent/renew/issue"
)

// Reasons for which a pair is not renewed though it is due.
const (
	// NoKey: no Secret has a CA together with its key.
	NoKey = "EtcdCAWithoutKey"
	// WrongCA: no CA that has its key signed the pair.
	WrongCA = "EtcdCADidNotSign"
	// CAEnds: a successor would not live longer, since the CA ends.
	CAEnds = "EtcdCAEnds"
	// BadPair: the pair cannot be read, or its halves do not belong together.
	BadPair = "EtcdClientUnreadable"
	// NotIssued: there can be no successor for another reason.
	NotIssued = "EtcdClientNotIssued"
)

// Refusal is why a pair is not renewed. Its text says what to do.
type Refusal struct {
	// Reason is one of the above.
	Reason string
	text   string
}

// Error is what is wrong and what to do, and holds no byte of a key.
func (r *Refusal) Error() string { return r.text }

func refused(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, text: fmt.Sprintf(format, args...)}
}

// Authority is a CA as a Secret has it. Key may be empty.
type Authority struct {
	// Secret is the name.
	Secret string
	Cert   []byte
	Key    secret.Bytes
}

// Policy says when a pair is due: when less than a third of its life is left, or less than Before.
type Policy struct{ Before time.Duration }

// year is the longest life that is believed of a leaf: etcdadm's say that they began with their CA.
const year = 365 * 24 * time.Hour

func life(c *x509.Certificate) time.Duration { return min(c.NotAfter.Sub(c.NotBefore), year) }

// Due tells whether a certificate is due. Of one that lives less than twice Before, half its life counts for that: it
// would always be due otherwise.
func (p Policy) Due(c *x509.Certificate, now time.Time) bool {
	return c.NotAfter.Sub(now) < max(life(c)/3, min(p.Before, life(c)/2))
}

// Leaf is the first certificate in PEM, nil if it cannot be read.
func Leaf(text []byte) *x509.Certificate {
	b, _ := pem.Decode(text)
	if b == nil {
		return nil
	}
	c, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		return nil
	}
	return c
}

// Renew gives the successor of a pair that is due, and nil if it is not. An error matches *Refusal unless the source of
// random bytes failed.
func (p Policy) Renew(old issue.Pair, cas []Authority, now time.Time, random io.Reader) (*issue.Successor, error) {
	leaf := Leaf(old.Certificate)
	if leaf == nil {
		return nil, refused(BadPair, "tls.crt holds no certificate: put a pair there that the etcd CA signed")
	}
	if !p.Due(leaf, now) {
		return nil, nil
	}
	var names []string
	why := refused(NoKey, "")
	for _, ca := range cas {
		names = append(names, ca.Secret)
		if ca.Key.Len() == 0 {
			continue
		}
		next, err := issue.Order{Old: old, CA: ca.Cert, CAKey: ca.Key, Now: now}.Successor(random)
		var refusal *issue.Refusal
		switch {
		case errors.As(err, &refusal):
			why = translated(refusal, why)
		case err != nil:
			return nil, err
		case next.Leaf.NotAfter.Sub(leaf.NotAfter) < life(leaf)/leastGain:
			why = refused(CAEnds, endsSoon)
		default:
			return &next, nil
		}
	}
	return nil, advised(why, strings.Join(names, " and "))
}

// leastGain is the part of its life that a successor has to live longer. A CA that ends would have another made again
// and again otherwise.
const leastGain = 20

const endsSoon = "its CA ends, and a successor would live hardly longer: the etcd CA has to be replaced"

// translated is what a refusal means here. What says more than that a CA is another one stays.
func translated(r *issue.Refusal, before *Refusal) *Refusal {
	switch r.Reason {
	case issue.ForeignCA, issue.ForeignKey:
		if before.Reason == NoKey {
			return refused(WrongCA, "")
		}
		return before
	case issue.NoGain, issue.CAOver:
		return refused(CAEnds, endsSoon)
	case issue.NoPair:
		return refused(BadPair, "tls.key is not the key of tls.crt: put a pair there that the etcd CA signed")
	}
	return refused(NotIssued, "%s: renew it where the etcd CA is", r.Error())
}

// advised says what to do where the Secrets are at fault.
func advised(r *Refusal, names string) *Refusal {
	switch r.Reason {
	case NoKey:
		return refused(NoKey, "%s have no key of the etcd CA in tls.key: "+
			"put CA and key into one of them, or renew the pair where the CA is", names)
	case WrongCA:
		return refused(WrongCA, "the CA whose key is in %s did not sign it: "+
			"put the CA there that etcd trusts for clients, or renew the pair where that CA is", names)
	}
	return r
}
