// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// certificate is the first to expire of one file of one node, or a node's own identity.
type certificate struct {
	Node string `json:"node"`
	// Field is empty for the identity.
	Field    string    `json:"field,omitempty"`
	Registry string    `json:"registry,omitempty"`
	Expires  time.Time `json:"expires"`
}

// exitFound is the code of certs if something expires in the time that was asked for.
const exitFound = 3

func certsCommand(c *connection) *cobra.Command {
	var form output
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Show when certificates on nodes expire",
		Long: `certs shows, the earliest first, when the first certificate of each managed file expires on each node,
and when the node's own identity does. Nodes renew their identity by themselves.

With --expires-within it shows only what expires in that time, and exits with 3 if anything does.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if within < 0 {
				return process.Misused(fmt.Errorf("--expires-within %v is before now", within))
			}
			to, err := c.cluster()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), listTimeout)
			defer cancel()
			all, now := []certificate{}, time.Now()
			err = each(ctx, to, states, func(o v1alpha1.NodeCertificateState) {
				all = append(all, expiring(o, now, within)...)
			})
			if err != nil {
				return err
			}
			slices.SortFunc(all, earliest)
			if err := form.print(cmd.OutOrStdout(), all, func(out io.Writer) { printCertificates(out, all, now) }); err != nil {
				return err
			}
			if within > 0 && len(all) > 0 {
				return process.Exit{Code: exitFound, Cause: fmt.Errorf("%d expire within %v", len(all), within)}
			}
			return nil
		},
	}
	form.flag(cmd)
	cmd.Flags().DurationVar(&within, "expires-within", 0, "only what expires within `DURATION`, such as 720h")
	return cmd
}

// expiring are the certificates of a node that expire within that time; all if it is zero.
func expiring(o v1alpha1.NodeCertificateState, now time.Time, within time.Duration) (all []certificate) {
	add := func(field, registry string, at time.Time) {
		if !at.IsZero() && (within == 0 || at.Before(now.Add(within))) {
			all = append(all, certificate{o.Name, field, registry, at})
		}
	}
	if i := o.Status.Identity; i != nil {
		add("", "", i.Expires.Time)
	}
	for _, f := range o.Status.Files {
		add(f.Field, f.Name, f.EarliestExpiry.Time)
	}
	return all
}

func earliest(a, b certificate) int {
	return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Field, b.Field),
		cmp.Compare(a.Registry, b.Registry))
}

func printCertificates(out io.Writer, all []certificate, now time.Time) {
	lines := [][]string{{"EXPIRES", "RESIDUAL TIME", "NODE", "FIELD", "REGISTRY"}}
	for _, c := range all {
		residual := "expired"
		if left := c.Expires.Sub(now); left > 0 {
			residual = duration.HumanDuration(left)
		}
		lines = append(lines, []string{c.Expires.UTC().Format(time.RFC3339), residual, c.Node,
			cmp.Or(c.Field, "the agent's identity"), strings.TrimSpace(c.Registry)})
	}
	columns(out, lines)
}
