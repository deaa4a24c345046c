// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// explanation is what the cluster knows of one node.
type explanation struct {
	Node string `json:"node"`
	// Joined is when the Node was made; nil if there is none.
	Joined *time.Time `json:"joined,omitempty"`
	// Reported is when the agent wrote last; nil if it never did.
	Reported   *time.Time              `json:"reported,omitempty"`
	State      string                  `json:"state,omitempty"`
	Reason     string                  `json:"reason,omitempty"`
	Conditions []v1alpha1.Condition    `json:"conditions,omitempty"`
	Held       []v1alpha1.StateHeld    `json:"held,omitempty"`
	Pending    []v1alpha1.StatePending `json:"pending,omitempty"`
	Breaker    *v1alpha1.StateBreaker  `json:"breaker,omitempty"`
	// Requests are those for the node's identity that wait.
	Requests []waitingRequest `json:"requests,omitempty"`
	// Blocks are the NodeBundles that keep a certificate because of this node.
	Blocks []blocked `json:"blocks,omitempty"`
	// Next is what to do.
	Next string `json:"next"`
}

type waitingRequest struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
}

type blocked struct {
	NodeBundle string `json:"nodeBundle"`
	Reason     string `json:"reason"`
}

func whyCommand(c *connection) *cobra.Command {
	var form output
	cmd := &cobra.Command{
		Use:   "why NODE",
		Short: "Explain why a node is as it is, and what to do",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return process.Misused(fmt.Errorf("name one node; 'kubectl node-certs status' lists them"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := c.config()
			if err != nil {
				return err
			}
			to, err := newCluster(config)
			if err != nil {
				return err
			}
			examiner, err := approver.NewExaminer(config, false)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), listTimeout)
			defer cancel()
			x, err := explain(ctx, to, examiner, args[0])
			if err != nil {
				return err
			}
			return form.print(cmd.OutOrStdout(), x, func(out io.Writer) { x.print(out, time.Now()) })
		},
	}
	form.flag(cmd)
	return cmd
}

// explain reads all that concerns a node.
func explain(ctx context.Context, to cluster, examiner *approver.Examiner, name string) (explanation, error) {
	x := explanation{Node: name}
	node, err := one[metav1.PartialObjectMetadata](ctx, to, nodes, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return x, err
	}
	if err == nil {
		x.Joined = &node.CreationTimestamp.Time
	}
	state, err := one[v1alpha1.NodeCertificateState](ctx, to, states, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return x, err
	}
	x.take(state)
	requests, err := examiner.Waiting(ctx, name)
	if err != nil {
		return x, err
	}
	for _, r := range requests {
		x.Requests = append(x.Requests, waitingRequest{r.Request.Name, r.Verdict.Message()})
	}
	err = each(ctx, to, bundles, func(b v1alpha1.NodeBundle) {
		for _, n := range b.Status.Blocking {
			if n.Node == name {
				x.Blocks = append(x.Blocks, blocked{b.Name, n.Reason})
			}
		}
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return x, err
	}
	x.Next = x.next(time.Now())
	if x.Joined == nil && x.Reported == nil && len(x.Requests) == 0 {
		return x, fmt.Errorf("there is no Node %s, no report of it and no request: 'kubectl node-certs status' lists the "+
			"nodes", name)
	}
	return x, nil
}

// take is what the node says itself.
func (x *explanation) take(o v1alpha1.NodeCertificateState) {
	if at := reported(o); !at.IsZero() {
		x.Reported = &at
	}
	s := o.Status
	x.State, x.Reason, x.Conditions = s.State, s.Reason, s.Conditions
	x.Held, x.Pending, x.Breaker = s.Held, s.Pending, s.Breaker
}

// silent is how long an agent may write nothing: it writes at least every hour.
const silent = 2 * time.Hour

// next is what to do, the first thing first.
func (x explanation) next(now time.Time) string {
	bad := func(kind string) (v1alpha1.Condition, bool) {
		for _, c := range x.Conditions {
			if c.Type == kind {
				return c, c.Status == metav1.ConditionFalse
			}
		}
		return v1alpha1.Condition{}, false
	}
	synced, unsynced := bad(v1alpha1.Synced)
	actions, undone := bad(v1alpha1.ActionsDone)
	_, stale := bad(v1alpha1.ConsumersLive)
	switch {
	case len(x.Requests) > 0:
		return "see what it asks for, and approve it: kubectl node-certs approve " + x.Requests[0].Name
	case x.Reported == nil:
		return "the agent has never reported. On the node: node-cert-agent check; node-cert-agent status"
	case now.Sub(*x.Reported) > silent:
		return "the agent is silent. Is the node on? On the node: systemctl status node-cert-agent; node-cert-agent status"
	case unsynced && synced.Reason == "Refused":
		return "correct the bundle in its source; the node leaves its last good file in place"
	case unsynced && synced.Reason == "LocalOverride":
		return "somebody applied content on the node. To take it back, on the node: node-cert-agent apply --revert"
	case unsynced:
		return "on the node: node-cert-agent status; journalctl -u node-cert-agent -u node-cert-agent-writer"
	case undone && actions.Reason == "Pending":
		return "wait: the agent acts on the unit by itself, unless it is paused"
	case undone:
		return "on the node: systemctl status UNIT; journalctl -u node-cert-agent-reloader"
	case stale:
		return "a server still uses what was there before. On the node: node-cert-agent status says which"
	case x.State != "following":
		return "on the node: node-cert-agent status; node-cert-agent check"
	}
	return "nothing"
}

// print shows what is known, and then what to do.
func (x explanation) print(out io.Writer, now time.Time) {
	lines := [][]string{{"node", x.Node}}
	add := func(name, format string, args ...any) {
		lines = append(lines, []string{name, fmt.Sprintf(format, args...)})
	}
	if x.Joined == nil {
		add("joined", "there is no Node of this name")
	} else {
		add("joined", "%s ago", since(x.Joined, now))
	}
	if x.Reported == nil {
		add("reported", "never")
	} else {
		add("reported", "%s ago", since(x.Reported, now))
		add("state", "%s", strings.TrimSuffix(x.State+": "+x.Reason, ": "))
	}
	for _, c := range x.Conditions {
		add(c.Type, "%s", strings.TrimSuffix(fmt.Sprintf("%s since %s: %s, %s", c.Status,
			c.LastTransitionTime.UTC().Format(time.RFC3339), c.Reason, c.Message), ", "))
	}
	for _, h := range x.Held {
		add("held", "%s: %s", strings.Join(strings.Fields(fmt.Sprintf("%s %s %.16s", h.Field, h.Name, h.Certificate)), " "),
			heldUntil(h))
	}
	for _, p := range x.Pending {
		add("pending", "%s %s: %s", p.Verb, p.Unit, p.Reason)
	}
	if b := x.Breaker; b != nil {
		add("breaker", "%s since %s: %s", b.Unit, b.Since.UTC().Format(time.RFC3339), b.Reason)
	}
	for _, r := range x.Requests {
		add("request", "%s: %s", r.Name, r.Verdict)
	}
	for _, b := range x.Blocks {
		add("blocks", "the NodeBundle %s: it %s", b.NodeBundle, b.Reason)
	}
	add("to do", "%s", x.Next)
	columns(out, lines)
}

func heldUntil(h v1alpha1.StateHeld) string {
	if h.Until.IsZero() {
		return h.Reason
	}
	return fmt.Sprintf("until %s, %s", h.Until.UTC().Format(time.RFC3339), h.Reason)
}
