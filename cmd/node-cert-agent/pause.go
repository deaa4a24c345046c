// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// maxPause is long enough for a change freeze. What is forgotten for longer is a fault.
const maxPause = 30 * 24 * time.Hour

func pauseCommand(f *flags) *cobra.Command {
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "pause --for TIME REASON",
		Short: "Take nothing away and act on no unit for a time",
		Long: `pause stops unit actions and removals of trust on this host for a time, which has to be said with a reason.
Everything else goes on: the ControllerConfig is followed, trust still grows, files are repaired, and status shows
what is pending. It outlives restarts and ends by itself, or with resume.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			reason := strings.TrimSpace(strings.Join(args, " "))
			if reason == "" {
				return process.Misused(errors.New("want a reason, such as: pause --for 2h upgrade of the storage"))
			}
			if lasts <= 0 || lasts > maxPause {
				return process.Misused(fmt.Errorf("want --for with a time up to %v, such as 2h", maxPause))
			}
			dir, err := f.ownState()
			if err != nil {
				return err
			}
			now := time.Now()
			p := &state.Pause{Reason: printable.Text(reason), At: now.UTC(), Until: now.Add(lasts).UTC(),
				Boot: bootID(), Uptime: systemClock{}.Uptime()}
			if err := state.SetOverrides(dir, state.Overrides{Pause: p}); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "paused until %s; 'node-cert-agent resume' ends it\n", p.Until.Format(time.RFC3339))
			return nil
		},
	}
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long, up to 720h (`TIME`)")
	return cmd
}

func resumeCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := f.ownState()
			if err != nil {
				return err
			}
			done, err := state.Resume(dir)
			if err == nil && !done {
				fmt.Fprintln(c.OutOrStdout(), "it was not paused")
			} else if err == nil {
				fmt.Fprintln(c.OutOrStdout(), "resumed")
			}
			return err
		},
	}
}
