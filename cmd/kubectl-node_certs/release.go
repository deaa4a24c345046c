// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher/merge"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// release are the flags of the command.
type release struct {
	force  bool
	reason string
}

func releaseCommand(c *connection) *cobra.Command {
	var r release
	cmd := &cobra.Command{
		Use:   "release NODEBUNDLE",
		Short: "Show which certificates a NodeBundle keeps, and let them go by force",
		Long: `release shows the certificates that a NodeBundle publishes although no source has them any more, and the nodes
for which they stay.

With --force they go although those nodes have not agreed: a node that lacks what remains then trusts no CA of
that field that is still in use, and has to be repaired by hand. It holds for the certificates that are shown, and
once. An Event of the NodeBundle and the audit log of the API server say who forced it and why.`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return process.Misused(errors.New("name one NodeBundle; 'kubectl get nodebundles' lists them"))
			case r.force != (r.reason != ""):
				return process.Misused(errors.New("--force and --reason TEXT belong together"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := c.cluster()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), listTimeout)
			defer cancel()
			return r.release(ctx, to, args[0], cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&r.force, "force", false, "let them go now")
	cmd.Flags().StringVar(&r.reason, "reason", "", "why, in a `TEXT` for the audit log")
	return cmd
}

// release shows, and then acts.
func (r release) release(ctx context.Context, to cluster, name string, out io.Writer) error {
	b, err := one[v1alpha1.NodeBundle](ctx, to, bundles, name)
	if err != nil {
		return err
	}
	held := merge.ForceOf(b.Status.Certificates)
	if held == "" {
		fmt.Fprintf(out, "%s keeps no certificate that no source has.\n", name)
		return nil
	}
	printHeld(out, b, time.Now())
	if !r.force {
		fmt.Fprintln(out, "\nThey go when these nodes have what remains. --force --reason TEXT lets them go now.")
		return nil
	}
	who, err := to.whoami(ctx)
	if err != nil {
		return err
	}
	err = to.patch(ctx, bundles, name, map[string]any{"metadata": map[string]any{"resourceVersion": b.ResourceVersion,
		"annotations": map[string]string{merge.ForceRemoval: held, merge.ForceReason: r.reason, merge.ForcedBy: who}}})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "\nforced: the publisher takes them out of the ControllerConfig now")
	return nil
}

// printHeld shows what is kept, and for whom.
func printHeld(out io.Writer, b v1alpha1.NodeBundle, now time.Time) {
	lines := [][]string{{"CERTIFICATE", "SUBJECT", "SINCE", "WHY"}}
	for _, c := range b.Status.Certificates {
		if c.KeptSince != nil {
			lines = append(lines, []string{"sha256:" + c.SHA256, c.Subject, since(&c.KeptSince.Time, now), c.Reason})
		}
	}
	columns(out, lines)
	if len(b.Status.Blocking) == 0 {
		return
	}
	fmt.Fprintln(out)
	lines = [][]string{{"NODE", "SINCE", "WHY"}}
	for _, n := range b.Status.Blocking {
		var at *time.Time
		if n.Since != nil {
			at = &n.Since.Time
		}
		lines = append(lines, []string{n.Node, since(at, now), n.Reason})
	}
	columns(out, lines)
}

// whoami is who the API server takes us for.
func (c cluster) whoami(ctx context.Context) (string, error) {
	raw, err := c.client.Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").
		SetHeader("Content-Type", "application/json").
		Body([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)).Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("asking who you are: %w", err)
	}
	var review struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	err = json.Unmarshal(raw, &review)
	if name := review.Status.UserInfo.Username; name != "" {
		return name, nil
	}
	return "", fmt.Errorf("asking who you are: %w", cmp.Or(err, errors.New("the API server does not say")))
}

// patch changes an object, by an RFC 7386 patch.
func (c cluster) patch(ctx context.Context, collection, name string, change any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	err = c.client.Patch(types.MergePatchType).AbsPath(collection, name).Param("fieldManager", manager).Body(body).
		Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("changing %s/%s: %w", collection, name, err)
	}
	return nil
}
