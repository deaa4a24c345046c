// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"cmp"
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
	// Spread is how long a change waits before it is written, drawn anew for each: all nodes see a new ControllerConfig
	// at once, and shall not report at once. Nil means that nothing waits.
	Spread func() time.Duration
	// After is time.After, or a test's.
	After func(time.Duration) <-chan time.Time
	// Now is time.Now, or a test's.
	Now func() time.Time
	// Trouble is told once about each new reason why the object could not be written. Its absence is
	// not trouble: a cluster need not have the kind.
	Trouble func(error)
}

// Shipped are the options of the product for a node of that name. The heartbeat is an hour: the approver takes a node
// that was silent for two for dead. A change is reported when two seconds have passed, and
// within twelve: a ControllerConfig reaches the nodes before their reports keep the API server busy.
func Shipped(node string, trouble func(error)) ObjectOptions {
	const least, first = 10 * time.Second, 2 * time.Second
	return ObjectOptions{Node: node, Least: least, Heartbeat: time.Hour, After: time.After, Now: time.Now,
		Trouble: trouble, Spread: func() time.Duration { return first + rand.N(least) }}
}

// Object keeps the status of nodecertificatestates.node-cert-agent.io of this node's name as Status has it. It is a
// report and nothing depends on it: it never holds up the loop, writes only when something changed or
// the heartbeat is due, and takes no answer for an order. It writes nothing where the cluster would let it
// write for another node.
type Object struct {
	opt      ObjectOptions
	newest   chan Status
	client   *http.Client
	server   *url.URL
	confined bool // the cluster was seen to refuse a write for another node
	exists   bool // the object was seen, and since has what it says
	since    transitions
}

// NewObject makes an Object; Run makes it work.
func NewObject(o ObjectOptions) *Object {
	return &Object{opt: o, newest: make(chan Status, 1), since: transitions{}}
}

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
// identity ends the pause, but for what a change waits: the watch has returned, or the server believes us again, and
// until the cluster hears of it, it takes a node for dead that is not.
func (o *Object) Run(ctx context.Context, client *http.Client, server *url.URL) {
	o.client, o.server = client, server
	var last Status
	var sent []byte
	var lastError string
	var tried time.Time
	var pause <-chan time.Time
	failures, due, waits := 0, false, false
	heartbeat := o.opt.After(o.pace())
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-o.newest:
			switch {
			case failures > 0 && differs(s, last):
				failures, pause = 0, o.opt.After(max(o.opt.Least-o.opt.Now().Sub(tried), o.spread()))
			case !waits && sent != nil && o.opt.Spread != nil && unlessOver(pause) == nil:
				waits, pause = true, o.opt.After(o.spread())
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
		if failures > 0 || waits || o.opt.Spread == nil {
			select { // what came while the pause ended; else it has yet to wait
			case last = <-o.newest:
			default:
			}
		}
		body := stateOf(last, o.opt.Node, time.Time{}).encode()
		if last.State == "" || !due && bytes.Equal(body, sent) {
			waits = false
			continue
		}
		tried, waits = o.opt.Now(), false
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

// spread is how long a change waits.
func (o *Object) spread() time.Duration {
	if o.opt.Spread == nil {
		return 0
	}
	return o.opt.Spread()
}

// unlessOver is pause, or nil if that is over.
func unlessOver(pause <-chan time.Time) <-chan time.Time {
	select {
	case <-pause:
		return nil
	default:
		return pause
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
	if there, err := o.confine(ctx); err != nil || !there {
		return err
	}
	for {
		found := o.exists
		if there, err := o.begin(ctx); err != nil || !there {
			return err
		}
		now := o.opt.Now()
		object := stateOf(s, o.opt.Node, now)
		o.since.stamp(object.Status.Conditions, now)
		a, err := o.send(ctx, request{method: http.MethodPatch, path: o.opt.Node + "/status", manager: manager, force: true,
			object: object.encode()}, nil)
		if o.exists = a.code != http.StatusNotFound; o.exists || !found || err != nil {
			return cmp.Or(err, a.fault())
		}
		// somebody deleted it since we saw it
	}
}

// confine asks once whether the cluster refuses what we write for another node. Without an error, there tells whether
// it has the kind.
func (o *Object) confine(ctx context.Context) (there bool, err error) {
	if o.confined {
		return true, nil
	}
	a, err := o.send(ctx, request{method: http.MethodPost, manager: manager, dryRun: true,
		object: newStateObject(nobody).encode()}, nil)
	if err == nil && a.code < 300 {
		err = errUnconfined
	}
	// A policy's refusal is 422. What is missing before that, such as a right, is missing for the next request as well,
	// which says so.
	o.confined = a.code == http.StatusUnprocessableEntity
	return a.code != http.StatusNotFound, err
}

// begin makes the object, or reads since when its conditions are as they are. We may not read it, and the answer to a
// write that changes nothing is the object. Without an error, there tells whether the cluster has the kind.
func (o *Object) begin(ctx context.Context) (there bool, err error) {
	if o.exists {
		return true, nil
	}
	var found struct {
		Status struct{ Conditions []condition }
	}
	a, err := o.send(ctx, request{method: http.MethodPatch, path: o.opt.Node + "/status", manager: manager + "-reader",
		dryRun: true, object: newStateObject(o.opt.Node).encode()}, &found)
	if err == nil && a.code == http.StatusNotFound {
		a, err = o.send(ctx, request{method: http.MethodPost, manager: manager,
			object: newStateObject(o.opt.Node).encode()}, nil)
		if a.code == http.StatusConflict { // the approver made it meanwhile
			a.code = http.StatusCreated
		}
	}
	if err != nil || a.code == http.StatusNotFound {
		return false, err
	}
	if len(o.since) == 0 {
		o.since.restore(found.Status.Conditions)
	}
	return true, a.fault()
}

// manager is our name as a field manager; see "Server-Side Apply" in the Kubernetes documentation.
const manager = "node-cert-agent"

// request is one to the API server about our kind. Without a path it is about all objects.
type request struct {
	method, path, manager string
	dryRun, force         bool
	object                []byte
}

// answer is what the API server made of a request.
type answer struct {
	code    int
	message string
}

func (a answer) fault() error {
	if a.code < 300 {
		return nil
	}
	return fmt.Errorf("state object: the server answered %d %s", a.code, printable.Text(a.message))
}

// mostObject is more than the API server keeps of an object, in bytes.
const mostObject = 4 << 20

// send has the API server carry out r. It decodes the object of the answer into found, unless that is nil.
func (o *Object) send(ctx context.Context, r request, found any) (a answer, err error) {
	u := o.server.JoinPath("apis/node-cert-agent.io/v1alpha1/nodecertificatestates", r.path)
	query := url.Values{"fieldManager": {r.manager}}
	if r.force {
		query.Set("force", "true")
	}
	if r.dryRun {
		query.Set("dryRun", "All")
	}
	u.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(r.object))
	if err != nil {
		return a, fmt.Errorf("state object: %v", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if r.method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	accept, most := "application/json", int64(mostObject)
	if found == nil {
		accept, most = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json", 4096
	}
	req.Header.Set("Accept", accept)
	res, err := o.client.Do(req)
	if err != nil {
		return a, fmt.Errorf("state object: %s", reply.Fact(err))
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(res.Body, most))
	a.code = res.StatusCode
	if a.code >= 300 {
		var status struct{ Message string }
		_ = json.Unmarshal(text, &status)
		a.message = status.Message
	} else if found != nil {
		_ = json.Unmarshal(text, found) // without it, the conditions begin anew
	}
	return a, nil
}

// Fanout publishes each Status on this host and as the node's state object.
type Fanout struct {
	*Reporter
	Object *Object
}

// Publish shows s in both places. An error is the Reporter's: the state object is written beside the caller, or later.
func (f Fanout) Publish(s Status) error {
	f.Object.Publish(s)
	return f.Reporter.Publish(s)
}
