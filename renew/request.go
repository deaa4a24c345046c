// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

// Where hosts ask and answer each other in etcd: below these, a key for each host that asks, with its name.
const (
	requestPrefix = "/node-cert-agent.io/renewal/requests/"
	answerPrefix  = "/node-cert-agent.io/renewal/answers/"
)

// mostRequests is how many are looked at. There are as many as hosts with an API server, and three or five of those.
const mostRequests = 32

// response is what a host with the CA's key says to a request: a certificate, or why there is none.
type response struct {
	// Request is the digest of the request, so that the answer to another one is not taken for that to this one.
	Request string `json:"request"`
	// By is the name of the host.
	By          string `json:"by"`
	Certificate string `json:"certificate,omitempty"` // PEM
	Refusal     string `json:"refusal,omitempty"`
}

// readResponse is what there is to a request; nil is nothing. Nothing in it is believed: what does not hold is none.
func readResponse(kv *etcd.KeyValue, request []byte) *response {
	var a response
	if kv == nil || len(kv.Value) > 2*signer.MaxRequest || json.Unmarshal(kv.Value, &a) != nil ||
		a.Request != digest(request) || (a.Certificate == "") == (a.Refusal == "") {
		return nil
	}
	a.By, a.Refusal = printable.Text(a.By), printable.Text(a.Refusal)
	return &a
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// requests is what one host asks of the others, and answers them, in etcd.
type requests struct {
	Signer Changer
	Host   string
	Store  Cluster
}

// wanted is the pair that is due and that another host has to renew.
func (u *Unattended) wanted(seen inspect.Inspection) (pair.Facts, bool) {
	for _, f := range seen.Pairs {
		v := pair.Judge(f, nil, u.Policy, u.Clock.Now())
		if u.Policy.ThroughEtcd && v.Requestable && f.Due(u.Policy, u.Clock.Now()) {
			return f, true
		}
	}
	return pair.Facts{}, false
}

// answers tells whether this host is one that others ask: it runs a member of etcd, and has the key of its CA.
func (u *Unattended) answers(seen inspect.Inspection) bool {
	f, ok := pair.EtcdServer(seen.Pairs)
	return ok && u.Policy.ThroughEtcd && f.CA != nil && f.CA.KeyHere
}

// ask asks for the successor of a pair, unless that is done. It returns the certificate, or says who has not given
// it.
func (r requests) ask(ctx context.Context, f pair.Facts) (certificate []byte, waits string, err error) {
	text, err := r.Signer.Request(ctx, signer.Change{Pair: f.Name, Leaf: f.Leaf.SHA256})
	if err != nil {
		return nil, "", err
	}
	asked, err := r.Store.Get(ctx, requestPrefix+r.Host)
	if err != nil {
		return nil, "", err
	}
	if asked == nil || !bytes.Equal(asked.Value, text) {
		if err := r.put(ctx, requestPrefix+r.Host, asked, text); err != nil {
			return nil, "", err
		}
	}
	kv, err := r.Store.Get(ctx, answerPrefix+r.Host)
	if err != nil {
		return nil, "", err
	}
	switch a := readResponse(kv, text); {
	case a == nil:
		return nil, f.Name + ": no host with the CA's key has answered yet; one with renewal.throughEtcd does", nil
	case a.Refusal != "":
		return nil, fmt.Sprintf("%s: %s refuses: %s", f.Name, a.By, a.Refusal), nil
	default:
		return []byte(a.Certificate), "", nil
	}
}

// reject removes an answer that is no good, so that there can be another one.
func (r requests) reject(ctx context.Context) { r.remove(ctx, answerPrefix+r.Host) }

// forget removes what was asked and answered. What stays is replaced by the next request.
func (r requests) forget(ctx context.Context) {
	r.remove(ctx, requestPrefix+r.Host)
	r.remove(ctx, answerPrefix+r.Host)
}

func (r requests) remove(ctx context.Context, key string) {
	if kv, err := r.Store.Get(ctx, key); err == nil && kv != nil {
		_, _ = r.Store.Commit(ctx, etcd.Change{Key: key, From: kv.ModRevision, Delete: true})
	}
}

// answerAll answers what other hosts ask, each once; a refusal may be followed by a certificate, of this host or of
// another one. The error is that of the first that could not be answered.
func (r requests) answerAll(ctx context.Context) (failed error) {
	all, err := r.Store.List(ctx, requestPrefix, mostRequests)
	if err != nil {
		return err
	}
	for _, kv := range all {
		if err := r.answerOne(ctx, strings.TrimPrefix(kv.Key, requestPrefix), kv.Value); err != nil {
			failed = cmp.Or(failed, fmt.Errorf("answering %s: %w", printable.Text(kv.Key), err))
		}
	}
	return failed
}

func (r requests) answerOne(ctx context.Context, host string, request []byte) error {
	was, err := r.Store.Get(ctx, answerPrefix+host)
	if err != nil {
		return err
	}
	before := readResponse(was, request)
	if before != nil && before.Certificate != "" {
		return nil
	}
	a := response{Request: digest(request), By: r.Host}
	certificate, err := r.Signer.Issue(ctx, signer.Issue{Request: request})
	switch e, ok := errors.AsType[*signer.Error](err); {
	case ok && e.Reason == signer.Refused:
		a.Refusal = e.Detail
	case err != nil:
		return err
	default:
		a.Certificate = string(certificate)
	}
	if before != nil && a.Certificate == "" {
		return nil
	}
	value, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return r.put(ctx, answerPrefix+host, was, value)
}

// put writes a key in the place of what was there. If somebody else was faster, that stands until the next look.
func (r requests) put(ctx context.Context, key string, was *etcd.KeyValue, value []byte) error {
	ch := etcd.Change{Key: key, Value: value}
	if was != nil {
		ch.From = was.ModRevision
	}
	_, err := r.Store.Commit(ctx, ch)
	return err
}
