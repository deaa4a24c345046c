// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// manager is the field manager of what the plugin writes.
const manager = "kubectl-node-certs"

// approval are the flags of approve.
type approval struct {
	force, dryRun, machines bool
}

func approveCommand(c *connection) *cobra.Command {
	var a approval
	cmd := &cobra.Command{
		Use:   "approve REQUEST",
		Short: "Show what a certificate request asks for, and approve it",
		Long: `approve shows what a CertificateSigningRequest asks for and what node-cert-controller finds about it,
and approves it.

It never approves what the controller would deny. What the controller leaves pending it approves with --force:
read the reason first. The list of nodes that the controller has by --nodes is not known here.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return process.Misused(fmt.Errorf("name one request; 'kubectl get csr' lists them"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := c.config()
			if err != nil {
				return err
			}
			e, err := approver.NewExaminer(config, a.machines)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), listTimeout)
			defer cancel()
			return a.approve(ctx, e, args[0], cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&a.force, "force", false, "approve also what the controller leaves pending")
	f.BoolVar(&a.dryRun, "dry-run", false, "show the request, and approve nothing")
	f.BoolVar(&a.machines, "machines", false,
		"also accept the nodes of OpenShift's Machines, as the controller's flag does")
	return cmd
}

// approve shows, judges, and then acts.
func (a approval) approve(ctx context.Context, e *approver.Examiner, name string, out io.Writer) error {
	x, err := e.Examine(ctx, name)
	if err != nil {
		return err
	}
	printRequest(out, x, time.Now())
	if err := a.refuse(x.Verdict); err != nil || a.dryRun {
		return err
	}
	message := "approved by hand: " + x.Verdict.Message()
	if err := e.Approve(ctx, x, manager, message); err != nil {
		return err
	}
	fmt.Fprintln(out, "\napproved")
	return nil
}

// refuse says why a request with that verdict is not approved. It is nil if it is.
func (a approval) refuse(v verdict.Verdict) error {
	switch {
	case v.Action == verdict.Approve:
		return nil
	case v.Action == verdict.Ignore:
		return fmt.Errorf("this is no request that node-cert-controller decides: %s", v.Fact)
	case v.Action == verdict.Deny:
		return errors.New("node-cert-controller denies this request, and it can never become right: leave it")
	case v.Check == verdict.Age:
		return errors.New("this request is too old: Kubernetes removes it, and the node asks again")
	case a.force:
		return nil
	}
	return errors.New("node-cert-controller leaves this request pending, for the reason above; --force approves it")
}

// printRequest shows what would be approved. All of it comes from whoever asks, or from what that is about.
func printRequest(out io.Writer, x approver.Examination, now time.Time) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(t, "%s\t%s\n", name, printable.Text(value)) }
	line("request", x.Request.Name)
	line("asked by", x.Request.Spec.Username)
	line("made", duration.HumanDuration(now.Sub(x.Request.CreationTimestamp.Time))+" ago")
	if c := x.Claim; c != nil {
		line("for node", c.Node)
		line("credential", credential(*c))
		line("public key", "sha256:"+c.PublicKey)
	}
	if s := x.Request.Spec.ExpirationSeconds; s != nil {
		line("lifetime", duration.HumanDuration(time.Duration(*s)*time.Second))
	}
	line("the controller", fmt.Sprintf("would %s: %s", wouldDo(x.Verdict.Action), cmp.Or(x.Verdict.Message(), "-")))
	_ = t.Flush() // whoever reads may have gone
}

func wouldDo(a verdict.Action) string {
	if a == verdict.Pending {
		return "leave it pending"
	}
	return a.String() + " it"
}

// credential is what whoever asks has shown.
func credential(c verdict.Claim) string {
	kind := map[verdict.Class]string{verdict.Other: "a user", verdict.Agent: "the node's own identity",
		verdict.Token: "the bootstrap token " + c.TokenID(), verdict.Kubelet: "the node's kubelet",
		verdict.ServiceAccount: "a ServiceAccount"}[c.Class]
	if c.Bound {
		return kind + ", for this node only"
	}
	return kind
}
