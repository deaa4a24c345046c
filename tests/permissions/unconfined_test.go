// SPDX-License-Identifier: Apache-2.0

//go:build real

package permissions

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

func TestWithoutThePolicyAnAgentWritesNoStateAndItsReturnIsNoticed(t *testing.T) {
	p := plane(t)
	for _, kind := range []string{"validatingadmissionpolicybinding", "validatingadmissionpolicy"} {
		_, err := p.Kubectl(t.Context(), "delete", kind, "node-cert-agent-states")
		must.Do(t, err)
	}
	client := p.Client(csr.User("a"), csr.Group)
	wait.For(t, "the end of the policy at the server", func() bool {
		code, _ := ask(t, client, http.MethodPost, p.URL()+states+"?dryRun=All",
			map[string]any{"apiVersion": "node-cert-agent.io/v1alpha1", "kind": "NodeCertificateState",
				"metadata": map[string]any{"name": "b"}})
		return code == http.StatusCreated
	})

	server, err := url.Parse(p.URL())
	must.Do(t, err)
	told := make(chan error, 1)
	o := report.NewObject(report.ObjectOptions{Node: "a", Least: 50 * time.Millisecond, Heartbeat: time.Second,
		After: time.After, Now: time.Now, Trouble: func(err error) {
			select {
			case told <- err:
			default: // only the first is looked at, and none may hold up the rest
			}
		}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { o.Run(ctx, client, server); close(ended) }()
	defer func() { stop(); <-ended }()
	o.Publish(report.Status{State: "following"})
	if err := <-told; !strings.Contains(err.Error(), "the policy node-cert-agent-states is missing") {
		t.Errorf("told %v", err)
	}
	all := func() string {
		_, answer := ask(t, p.AdminClient(), http.MethodGet, p.URL()+states, nil)
		return answer
	}
	if answer := all(); !strings.Contains(answer, `"items":[]`) {
		t.Errorf("written was %s", answer)
	}
	must.Do(t, p.InstallShipped(t.Context()))
	wait.For(t, "the state that the agent publishes", func() bool { return strings.Contains(all(), `"state":"following"`) })
	if answer := all(); strings.Count(answer, `"state":`) != 1 {
		t.Errorf("written was %s", answer)
	}
}
