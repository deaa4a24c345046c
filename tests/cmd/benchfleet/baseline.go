// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

// baseline has watchers in place of agents, which read the event and write nothing: what the API server, the
// loopback and TLS take. They are gone before the agents start.
func baseline(ctx context.Context, e *env) (err error) {
	e.bare, err = e.watchers(ctx, "baseline", false)
	return err
}

// metadata is the same with watchers of metadata, which get the object when there is a new generation of it: another
// way for an agent to follow.
func metadata(ctx context.Context, e *env) error {
	_, err := e.watchers(ctx, "metadata and get", true)
	return err
}

// watchers measures some rounds of updates, and one of another annotation, which is what a status is like.
func (e *env) watchers(ctx context.Context, name string, metadata bool) (rounds []figures.Samples, err error) {
	watching, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var read atomic.Int64
	clients := make([]*http.Client, e.n)
	if err := each(e.n, func(i int) (err error) {
		clients[i], err = e.client(csr.User(fmt.Sprintf("bare-%04d", i)))
		return err
	}); err != nil {
		return nil, err
	}
	e.files.round(e.n)
	began := time.Now()
	for i, client := range clients {
		w := &bare{env: e, i: i, client: client, metadata: metadata, read: &read}
		running.Go(func() { w.run(watching) })
	}
	at, err := e.files.wait(ctx, "watchers", e.options.limit)
	if err != nil {
		return nil, err
	}
	e.table.Note(name+": watchers connected, all at once", "%v", figures.Since(began, at))
	for i := range e.options.rounds {
		pause(ctx, time.Second)
		read.Store(0)
		took, err := e.round(ctx)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			e.table.Note(name+": bytes of an update, each", "%d", read.Load()/int64(e.n))
		}
		rounds = append(rounds, took)
	}
	e.table.Note(name+": update accepted -> read", "%s", summary(rounds))
	pause(ctx, time.Second)
	read.Store(0)
	e.files.round(e.n)
	if _, err := e.store.Annotate(ctx, "bench", name); err != nil {
		return nil, err
	}
	accepted := time.Now()
	at, err = e.files.wait(ctx, "the annotation", e.options.limit)
	if err != nil {
		return nil, err
	}
	e.table.Note(name+": annotation accepted -> read", "%v", figures.Since(accepted, at))
	e.table.Note(name+": bytes of an annotation, each", "%d", read.Load()/int64(e.n))
	return rounds, nil
}

// client has a connection and a certificate of its own.
func (e *env) client(user string) (*http.Client, error) {
	der, key, err := sign(e.plane.CA(), user)
	if err != nil {
		return nil, err
	}
	transport := e.admin.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	return &http.Client{Transport: transport}, nil
}

// bare is a watcher with a connection and a client certificate of its own, which marks what it has read.
type bare struct {
	env      *env
	i        int
	client   *http.Client
	metadata bool
	read     *atomic.Int64 // bytes of all
}

// run tries again for ever.
func (w *bare) run(ctx context.Context) {
	defer w.client.CloseIdleConnections()
	for ctx.Err() == nil {
		w.follow(ctx)
		pause(ctx, time.Second)
	}
}

func (w *bare) follow(ctx context.Context) {
	query := url.Values{"watch": {"1"}, "fieldSelector": {"metadata.name=" + controllerconfig.Name},
		"timeoutSeconds": {"7200"}}
	accept := asJSON
	if w.metadata {
		accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	}
	stream := w.get(ctx, "?"+query.Encode(), accept)
	if stream == nil {
		return
	}
	defer stream.Close()
	last := -1
	buf := make([]byte, 16<<10)
	var event []byte // of metadata only
	for {
		n, err := stream.Read(buf)
		w.read.Add(int64(n))
		if w.metadata {
			event = append(event, buf[:n]...)
		}
		if bytes.IndexByte(buf[:n], '\n') >= 0 {
			if g := generation(event); g != last {
				last = g
				w.fetch(ctx)
			}
			event = event[:0]
			w.env.files.mark(w.i, time.Now())
		}
		if err != nil {
			return
		}
	}
}

// fetch gets the object, if only its metadata is watched.
func (w *bare) fetch(ctx context.Context) {
	if !w.metadata {
		return
	}
	if answer := w.get(ctx, "/"+controllerconfig.Name, asJSON); answer != nil {
		n, _ := io.Copy(io.Discard, answer) // what is cut off is no faster
		w.read.Add(n)
		_ = answer.Close()
	}
}

// get is the body of a good answer, or nil.
func (w *bare) get(ctx context.Context, path, accept string) io.ReadCloser {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		w.env.plane.URL()+controllerconfig.Small.Path()+path, nil)
	if err != nil {
		return nil
	}
	req.Header.Set("Accept", accept)
	res, err := w.client.Do(req)
	if err != nil {
		return nil
	}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		return nil
	}
	return res.Body
}

// generation is that of the object of an event; zero if the event does not say.
func generation(event []byte) int {
	_, rest, _ := bytes.Cut(event, []byte(`"generation":`))
	end := bytes.IndexAny(rest, ",}")
	g, _ := strconv.Atoi(string(rest[:max(end, 0)]))
	return g
}
