// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/check/collect"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// expiryWarning is how long before its end a certificate is worth a word, if that is at most a quarter of its
// life: the agent's own lives for days.
const expiryWarning = 30 * 24 * time.Hour

// certsTimeout bounds the question for the files: the writer may have to be started.
const certsTimeout = 30 * time.Second

// certificate is one line of the table.
type certificate struct {
	// Field is the file's, with the entry, "identity" for the agent's own, or "pair NAME" for one of a control plane.
	Field       string    `json:"field"`
	File        string    `json:"file"`
	Subject     string    `json:"subject"`
	Fingerprint string    `json:"sha256"`
	NotBefore   time.Time `json:"notBefore"`
	NotAfter    time.Time `json:"notAfter"`
	CA          bool      `json:"ca"`
	Warnings    []string  `json:"warnings,omitempty"`
}

func certsCommand(f *flags) *cobra.Command {
	var output format
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "List the certificates in the managed files, and the agent's own",
		Long: `certs reads the managed files through the writer and lists every certificate in them: where it is, its
subject, fingerprint (SHA-256) and end, whether it is a CA, and what is questionable about it. After them come
the agent's own and, where node-cert-agent-renew.service runs, those of the control plane. Run it as root.
Registries are listed as far as the service has published them.`,
		RunE: f.configured(func(c *cobra.Command, s config.Settings) error {
			ctx, cancel := context.WithTimeout(c.Context(), certsTimeout)
			defer cancel()
			if err := f.becomeServiceUser(); err != nil {
				return err
			}
			all, err := f.certificates(ctx, s, kubeconfig, c.ErrOrStderr())
			if err != nil {
				return err
			}
			return listCertificates(c.OutOrStdout(), output, append(all, f.pairLines(time.Now())...))
		}),
	}
	output.flag(cmd)
	kubeconfigFlag(cmd, &kubeconfig, "take the agent's own certificate from a `FILE`, not from the service")
	return cmd
}

// certificates are those of the managed files, and the agent's own behind them.
func (f *flags) certificates(ctx context.Context, s config.Settings, kubeconfig string,
	stderr io.Writer) ([]certificate, error) {
	a, err := f.access(s, kubeconfig, stderr)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	files, err := collect.Files(ctx, a, s.Policy.Policy)
	if err != nil {
		return nil, err
	}
	all, now := []certificate{}, time.Now()
	for _, f := range files {
		all = append(all, lines(printable.Text(f.Key.String()), f.Path, f.Data, now)...)
	}
	file := cmp.Or(kubeconfig, stateDir+"/identity.pem")
	name, _ := config.NodeName(f.configOptions(), s) // an identity that is another node's is said to be below
	id, err := a.Identity(name)
	if err != nil {
		fmt.Fprintf(stderr, "node-cert-agent: the agent's own certificate is not listed: %s\n", printable.Text(err.Error()))
		return all, nil
	}
	return append(all, lines("identity", file, id.Certificate(), now)...), nil
}

// lines are the certificates of one file, in its order.
func lines(field, file string, data []byte, now time.Time) (out []certificate) {
	content := pki.Read(data)
	for _, c := range content.Certs {
		line := certificate{Field: field, File: file, Subject: c.Subject, Fingerprint: c.Fingerprint.String(),
			NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(), CA: c.CA, Warnings: warnings(c, now)}
		if !content.Whole && field != "identity" {
			line.Warnings = append(line.Warnings, "in a file that would be refused")
		}
		out = append(out, line)
	}
	return out
}

func warnings(c pki.Cert, now time.Time) []string { return dateWarnings(c.NotBefore, c.NotAfter, now) }

func dateWarnings(from, to, now time.Time) (out []string) {
	switch left := to.Sub(now); {
	case left <= 0:
		out = append(out, "expired")
	case left < min(expiryWarning, to.Sub(from)/4):
		out = append(out, "expires soon")
	}
	if now.Before(from) {
		out = append(out, "not yet valid")
	}
	return out
}

// pairLines are the certificates of a control plane, as the other service last saw them; none where it does not run.
func (f *flags) pairLines(now time.Time) (out []certificate) {
	r, err := f.renewals()
	if err != nil {
		return nil
	}
	for _, v := range r.Pairs {
		line := certificate{Field: "pair " + printable.Text(v.Name), File: printable.Text(v.Cert),
			Subject: printable.Text(v.Leaf.Subject), Fingerprint: printable.Text(v.Leaf.SHA256), NotBefore: v.Leaf.NotBefore,
			NotAfter: v.Leaf.NotAfter}
		if v.Problem == "" {
			line.Warnings = dateWarnings(v.Leaf.NotBefore, v.Leaf.NotAfter, now)
		}
		for _, why := range []string{v.Problem, v.NotRenewed, v.StaleReason()} {
			if why != "" && !slices.Contains(line.Warnings, why) {
				line.Warnings = append(line.Warnings, printable.Text(why))
			}
		}
		out = append(out, line)
	}
	return out
}

func listCertificates(w io.Writer, output format, all []certificate) error {
	if output == asJSON {
		return printJSON(w, map[string]any{"certificates": all})
	}
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIELD\tFILE\tSUBJECT\tSHA-256\tNOT AFTER\tKIND\tWARNINGS")
	for _, c := range all {
		kind := "leaf"
		if c.CA {
			kind = "CA"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.16s\t%s\t%s\t%s\n",
			c.Field, c.File, c.Subject, c.Fingerprint, stamp(c.NotAfter, time.RFC3339), kind, strings.Join(c.Warnings, ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return trim(w, table.String())
}
