// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
	"github.com/node-cert-agent/node-cert-agent/renew"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/renew/signer"
)

func renewRequestCommand(f *flags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "request PAIR",
		Short: "Print a request for a pair whose CA key is on another host",
		Long: `request prints what node-cert-agent renew issue takes on a host that has the key of the pair's CA. It holds the
certificate and the new public key, is signed with the old key and the new one, and is no secret. The new key stays
on this host. The command prints the same request until the pair is another one.

It is for root, where renewal.mode is not report.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			return f.asRoot(func(c *cobra.Command, _ config.Settings, client *signer.Client, seen inspect.Inspection) error {
				p, err := pairNamed(seen, names[0])
				if err != nil {
					return err
				}
				text, err := client.Request(c.Context(), signer.Change{Pair: p.Name, Leaf: p.Leaf.SHA256, Force: force})
				return printText(c, text, err)
			})(c, nil)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "ask for what is not due as well")
	return cmd
}

func renewIssueCommand(f *flags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "issue <REQUEST",
		Short: "Print the certificate that another host's request asks for",
		Long: `issue reads what node-cert-agent renew request printed on another host, and prints the certificate for
node-cert-agent renew install there. It is the certificate of the request with another key, serial number and dates,
signed by the CA of the member of etcd that runs on this host. It has to be that of a client only.

It is for root, where renewal.mode is not report.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := input(c)
			if err != nil {
				return err
			}
			return f.asRoot(func(c *cobra.Command, _ config.Settings, client *signer.Client, _ inspect.Inspection) error {
				certificate, err := client.Issue(c.Context(), signer.Issue{Request: text, Force: force})
				return printText(c, certificate, err)
			})(c, nil)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "issue what is not due, and what follows a certificate that has ended")
	return cmd
}

func renewInstallCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "install PAIR <CERTIFICATE",
		Short: "Renew a pair with the certificate that another host issued",
		Long: `install reads what node-cert-agent renew issue printed on another host for the request of this one. It replaces
the pair if that is its successor, and then does what node-cert-agent renew now does: it has the servers prove that
they accept it, or restores the pair that there was before.

It is for root, where renewal.mode is not report.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			certificate, err := input(c)
			if err != nil {
				return err
			}
			return f.asRoot(func(c *cobra.Command, s config.Settings, client *signer.Client, seen inspect.Inspection) error {
				p, err := pairNamed(seen, names[0])
				if err != nil {
					return err
				}
				run := onDemand(client, s)
				run.Say = func(done renew.Outcome) { printRenewal(c.OutOrStdout(), done) }
				return run.Install(c.Context(), p, certificate)
			})(c, nil)
		},
	}
}

// asRoot runs a command that asks the signer as root, and everybody else as nobody who matters: the signer knows whom
// it speaks to from when the connection was made.
func (f *flags) asRoot(run func(*cobra.Command, config.Settings, *signer.Client, inspect.Inspection) error,
) func(*cobra.Command, []string) error {
	return f.configured(func(c *cobra.Command, s config.Settings) error {
		switch {
		case f.plain():
			return process.Misused(errors.New("--root: in plain mode there is no signer to ask"))
		case renewalPolicy(s).Mode == pair.ModeReport:
			return errOnlyReports
		case os.Geteuid() != 0 && f.become == nil:
			return errNotRoot
		}
		client := signer.Dial(signerSocket)
		defer func() { _ = client.Close() }()
		seen, err := client.Inspect(c.Context())
		if err != nil {
			return err
		}
		if err := f.becomeUserOf(renewUser); err != nil {
			return err
		}
		return run(c, s, client, seen)
	})
}

func pairNamed(seen inspect.Inspection, name string) (pair.Facts, error) {
	for _, p := range seen.Pairs {
		if p.Name == name {
			return p, nil
		}
	}
	return pair.Facts{}, fmt.Errorf("there is no pair %.64q on this host: see node-cert-agent renew", name)
}

// input is what another host printed. It is read before the signer is asked, which does not wait for people.
func input(c *cobra.Command) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(c.InOrStdin(), signer.MaxRequest+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) == 0 || len(text) > signer.MaxRequest:
		return nil, fmt.Errorf("standard input has %d bytes; want what another host printed, of at most %d", len(text),
			signer.MaxRequest)
	}
	return text, nil
}

func printText(c *cobra.Command, text []byte, err error) error {
	if err != nil {
		return err
	}
	_, err = c.OutOrStdout().Write(text)
	return err
}
