// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/reply"
)

// ObjectOptions say how the node's state object is written.
type ObjectOptions struct {
	// Node is the object's name. The admission policy lets an agent write no other.
	Node string
	// Least is the least time between two writes, Heartbeat the most, more or less a tenth.
	Least, Heartbeat time.Duration
	// After is time.After, or a test's.
	After func(time.Duration) <-chan time.Time
	// Now is time.Now, or a test's.
	Now func() time.Time
	// Trouble is told once about each new reason why the object could not be written. Its absence is
	// not trouble: a cluster need not have the kind.
	Trouble func(error)
}

// Object keeps nodecertificatestates.node-cert-agent.io of this node's name as Status has it. It is a
// report and nothing depends on it: it never holds up the loop, writes only when something changed or
// the heartbeat is due, and takes no answer for an order. It writes nothing where the cluster would let it
// write for another node.
type Object struct {
	opt      ObjectOptions
	newest   chan Status
	client   *http.Client
	server   *url.URL
	confined bool // the cluster was seen to refuse a write for another node
}

// NewObject makes an Object; Run makes it work.
func NewObject(o ObjectOptions) *Object { return &Object{opt: o, newest: make(chan Status, 1)} }

// Publish takes s over what was not sent yet. It does not wait, and may be called before Run. One goroutine may
// call it.
func (o *Object) Publish(s Status) {
	select {
	case <-o.newest:
	default:
	}
	o.newest <- s
}

// Run writes until ctx ends, to the API server whose base URL is server, through a client that authenticates as
// the agent. It must be called once. Each status is sent once, beginning with the newest so far; a failure is
// retried with what is newest then, after a pause that doubles up to five minutes. A status of another state or
// identity ends the pause: the watch has returned, or the server believes us again, and until the cluster hears of
// it, it takes a node for dead that is not.
func (o *Object) Run(ctx context.Context, client *http.Client, server *url.URL) {
	o.client, o.server = client, server
	var last Status
	var sent []byte
	var lastError string
	var tried time.Time
	var pause <-chan time.Time
	failures, due := 0, false
	heartbeat := o.opt.After(o.pace())
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-o.newest:
			if failures > 0 && differs(s, last) {
				failures, pause = 0, o.opt.After(o.opt.Least-o.opt.Now().Sub(tried))
			}
			last = s
		case <-heartbeat:
			due, heartbeat = true, o.opt.After(o.pace())
		case <-pause:
			pause = nil
		}
		if pause != nil {
			continue
		}
		select { // what came while the pause ended
		case last = <-o.newest:
		default:
		}
		body := body(last, o.opt.Node, time.Time{})
		if last.State == "" || !due && bytes.Equal(body, sent) {
			continue
		}
		tried = o.opt.Now()
		if err := o.apply(ctx, last); err == nil {
			sent, due, lastError, failures = body, false, "", 0
		} else {
			if text := err.Error(); ctx.Err() == nil && text != lastError {
				lastError = text
				o.opt.Trouble(err)
			}
			failures++
		}
		pause = o.opt.After(min(o.opt.Least<<min(failures, 20), max(o.opt.Least, longestPause)))
	}
}

// longestPause is how long a failed write may wait, so that a live node is heard of soon after its server
// is back.
const longestPause = 5 * time.Minute

// differs tells whether two statuses differ in what decides whether the server takes a write.
func differs(a, b Status) bool {
	as := func(i *Identity) string {
		if i == nil {
			return ""
		}
		return string(i.State) + " " + i.Serial
	}
	return a.State != b.State || as(a.Identity) != as(b.Identity)
}

// pace is the time to the next heartbeat: a fleet shall not write at once.
func (o *Object) pace() time.Duration { return o.opt.Heartbeat*9/10 + rand.N(o.opt.Heartbeat/5+1) }

// nobody is the name of no node.
const nobody = "node-cert-agent.invalid"

var errUnconfined = errors.New("state object: it is not written, because this cluster would let any node " +
	"write that of another: the policy node-cert-agent-states is missing, which takes Kubernetes 1.30 or later")

// apply writes s, once it is known that the cluster confines us. It is no error if there is nothing to write
// to.
func (o *Object) apply(ctx context.Context, s Status) error {
	if !o.confined {
		code, _, err := o.patch(ctx, nobody, true, body(Status{State: s.State}, nobody, time.Time{}))
		switch {
		case err != nil:
			return err
		case code < 300:
			return errUnconfined
		case code == http.StatusNotFound:
			return nil // the cluster does not have the kind
		}
		// A policy's refusal is 422. What is missing before that, such as a right, is missing for the next
		// request as well, which says so.
		o.confined = code == http.StatusUnprocessableEntity
	}
	code, message, err := o.patch(ctx, o.opt.Node, false, body(s, o.opt.Node, o.opt.Now()))
	if err != nil || code < 300 || code == http.StatusNotFound {
		return err
	}
	return fmt.Errorf("state object: the server answered %d %s", code, printable.Text(message))
}

// patch is one server-side apply with our field manager; see "Server-Side Apply" in the Kubernetes
// documentation.
func (o *Object) patch(ctx context.Context, name string, dryRun bool, object []byte,
) (code int, message string, err error) {
	u := o.server.JoinPath("apis/node-cert-agent.io/v1alpha1/nodecertificatestates", name)
	query := url.Values{"fieldManager": {"node-cert-agent"}, "force": {"true"}}
	if dryRun {
		query.Set("dryRun", "All")
	}
	u.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, u.String(), bytes.NewReader(object))
	if err != nil {
		return 0, "", fmt.Errorf("state object: %v", err)
	}
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	res, err := o.client.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("state object: %s", reply.Fact(err))
	}
	defer func() { _ = res.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
	var status struct{ Message string }
	_ = json.Unmarshal(answer, &status)
	return res.StatusCode, status.Message, nil
}
