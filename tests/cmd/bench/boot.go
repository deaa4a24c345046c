// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// bootBudget is how long after its approval a node may have all its files.
const bootBudget = 5000

// approvals come this long after the request at most.
const approvals = 30 * time.Second

// boot is the time from the approval of a node's first request until all its files are there and the agent
// says that it follows. Each time the host reboots, with the agent enabled and nothing but a token. Nobody
// approves but this process, which does it after any time up to half a minute, as a person would who watches.
// The environment is its own, since others do not outlive a reboot.
func boot(ctx context.Context, _ *env, p plan, t *figures.Table) (err error) {
	e, err := newEnv(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	if err := e.Plane.InstallShipped(ctx); err != nil {
		return err
	}
	if err := e.Host.PutFile(dropIn, host.File{Data: []byte("[Service]\nRestartSec=100ms\n")}); err != nil {
		return err
	}
	if _, err := e.Host.Run(ctx, "systemctl", "enable", agentUnit); err != nil {
		return err
	}
	s := newTokens(e)
	var requested, synced figures.Samples
	for i := range p.boots {
		id := fmt.Sprintf("boo%03d", i)
		asked, took, err := s.boot(ctx, "boot-"+id, id)
		if err != nil {
			return fmt.Errorf("the boot with the token %s: %w", id, err)
		}
		requested, synced = append(requested, asked), append(synced, took)
	}
	t.Note("first boot with a token: begin of the reboot -> request", "%v", requested)
	t.Note(fmt.Sprintf("approved, up to %v after the request -> synced", approvals), "%v", synced)
	t.Judge("  slowest", synced.Milliseconds(1), bootBudget, "ms")
	return nil
}

// boot is one first boot: when it asked, from the beginning of the shutdown, and how long after the approval all
// files were there.
func (s *tokens) boot(ctx context.Context, node, id string) (asked, took time.Duration, err error) {
	if err := s.prepare(ctx, node, id); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := s.Host.Reboot(ctx); err != nil {
		return 0, 0, err
	}
	var name string
	if err := errors.Join(wait.Until(ctx, "a request", func() bool {
		name, err = s.waiting(ctx)
		return err != nil || name != ""
	}), err); err != nil {
		return 0, 0, err
	}
	asked = time.Since(began)
	pause(ctx, time.Duration(rand.Int64N(int64(approvals))))
	if err := s.approves(ctx, name); err != nil {
		return 0, 0, err
	}
	approved := time.Now()
	want := map[string][]byte{}
	for place, data := range controllerconfig.Files(s.arms[1].content.Spec) {
		want[s.Host.Path(place)] = data
	}
	err = wait.Until(ctx, "all files", func() bool { return s.Status().State == "following" && hold(want) })
	return asked, time.Since(approved), err
}

// requested is what is needed of a request.
type requested struct {
	Metadata struct{ Name string }
	Status   struct{ Conditions []any }
}

// waiting is the name of the request that nobody has decided about, empty if there is none.
func (s *tokens) waiting(ctx context.Context) (string, error) {
	answer, err := s.admin().ask(ctx, http.MethodGet, requestsPath, nil)
	if err != nil {
		return "", err
	}
	var all struct{ Items []requested }
	if err := json.Unmarshal(answer, &all); err != nil {
		return "", err
	}
	for _, r := range all.Items {
		if len(r.Status.Conditions) == 0 {
			return r.Metadata.Name, nil
		}
	}
	return "", nil
}

// approves approves a request, and returns when the API server has.
func (s *tokens) approves(ctx context.Context, name string) error {
	answer, err := s.admin().ask(ctx, http.MethodGet, requestsPath+"/"+name, nil)
	if err != nil {
		return err
	}
	var request map[string]any
	if err := json.Unmarshal(answer, &request); err != nil {
		return err
	}
	request["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Approved", "status": "True",
		"reason": "Bench", "message": "approved by the benchmark"}}}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	_, err = s.admin().ask(ctx, http.MethodPut, requestsPath+"/"+name+"/approval", body)
	return err
}

func (s *tokens) admin() caller { return caller{Client: s.Plane.AdminClient(), url: s.Plane.URL()} }
