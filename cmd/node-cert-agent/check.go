// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/check"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
)

func checkCommand(f *flags) *cobra.Command {
	var output format
	var kubeconfig kubeconfigPath
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether this host and its cluster are fit for the agent",
		Long: `check looks at the configuration, the files and their directories, the writer, systemd, the
allowlist, the identity, the API server and the clock, and prints a line for each finding: ok, warn or
fail, what was found, and what to do about it. It changes nothing, and may run at any time beside the
service. As root it sees most. It exits with 0 if nothing fails, with 1 if something does, and with 2 if
the configuration is invalid.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := f.load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			p := survey{flags: f, settings: s, kubeconfig: string(kubeconfig), stderr: c.ErrOrStderr()}
			if err := p.look(ctx); err != nil {
				return err
			}
			return tell(c.OutOrStdout(), output, check.Judge(p.facts))
		},
	}
	output.flag(cmd)
	kubeconfig.flag(cmd, "take identity and address of the API server from a `FILE`, as the service does if it was given one")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for answers in all")
	return cmd
}

// tell prints the findings; the error has a code if one of them is a failure.
func tell(w io.Writer, output format, findings []check.Finding) (err error) {
	failed := false
	for _, f := range findings {
		failed = failed || f.Level == check.Fail
	}
	if output == asJSON {
		err = printJSON(w, struct {
			Findings []check.Finding `json:"findings"`
		}{findings})
	} else {
		for _, f := range findings {
			line := fmt.Sprintf("%-4s  %s: %s", f.Level, f.What, f.Fact)
			if f.Do != "" {
				line += "; do: " + f.Do
			}
			if _, err = fmt.Fprintln(w, line); err != nil {
				break
			}
		}
	}
	if err == nil && failed {
		err = exit{code: exitFailed}
	}
	return err
}

// survey collects what check.Judge judges. Nothing here waits for a lock or writes.
type survey struct {
	flags      *flags
	settings   config.Settings
	kubeconfig string
	stderr     io.Writer
	wiring     *wiring
	facts      check.Facts
}

// look goes over the host twice: as root, if we are, for what only root may see, and then as the
// service, whose rights are what counts.
func (p *survey) look(ctx context.Context) (err error) {
	s := p.settings
	p.facts = check.Facts{Plain: p.flags.plain(), Root: os.Geteuid() == 0, Now: time.Now(), Profile: s.Profile, Sources: s.Files, Policy: s.Policy}
	if p.wiring, err = wire(p.flags, p.stderr); err != nil {
		return err
	}
	defer func() { p.wiring.close() }()
	p.facts.Node.Name, p.facts.Node.Problem = p.node()
	p.host()
	p.resolver()
	p.directories()
	p.managed(ctx)
	p.mounts()
	if !p.facts.NoUser {
		if err := p.flags.becomeServiceUser(); err != nil {
			return err
		}
	}
	again, err := wire(p.flags, p.stderr)
	if err != nil {
		return err
	}
	p.wiring.close() // these connections are root's
	p.wiring = again
	p.status()
	p.ask(ctx)
	p.systemd(ctx)
	p.api(ctx)
	p.clock()
	return nil
}

func (p *survey) node() (name, problem string) {
	name, err := config.NodeName(p.flags.configOptions(), p.settings)
	if err != nil {
		problem = err.Error()
	}
	return name, problem
}
