// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/files"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/state"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// applyOptions are the flags of apply.
type applyOptions struct {
	input               inputOptions
	now, dryRun, revert bool
	timeout             time.Duration
}

var (
	errNothingToApply = errors.New("nothing in the input can be used")
	errNoService      = errors.New("no service runs that could know what the ControllerConfig asks for")
)

func applyCommand(f *flags) *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use:   "apply {-f FILE | --now | --revert}",
		Short: "Put contents on this host by hand, without an API server",
		Long: `apply takes a ControllerConfig in YAML or JSON, or with --field the bare content of one file, and does with it
what the agent does with the ControllerConfig of the cluster: the same validation, plan, records and unit actions.
It is a local override: it wins until the ControllerConfig asks for something else than it does now, or until
apply --revert. A service that runs carries it out; if none runs, this command does.
--now alone confirms what the ControllerConfig asks for, or what was applied before: what is held goes at once, and what
is dropped later waits as ever.
With --root it fills a tree, as an image build does, and leaves nothing there that would win later.`,
		RunE: func(c *cobra.Command, _ []string) error {
			given := o.input != (inputOptions{})
			switch {
			case o.revert && !given:
				return f.revert(c.OutOrStdout())
			case o.now && !given && !o.dryRun:
				return f.confirm(c.Context(), o.timeout, c.OutOrStdout(), c.ErrOrStderr())
			case o.revert || o.input.file == "":
				return process.Misused(errors.New("want one of -f FILE, --now and --revert"))
			}
			return f.apply(c.Context(), o, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.input.flags(cmd)
	cmd.Flags().BoolVar(&o.now, "now", false, "remove at once what is no longer asked for, and act on units at once")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false,
		"print what would be done, and do nothing: exits with 3 if there is something")
	cmd.Flags().BoolVar(&o.revert, "revert", false, "take back what was applied")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long to wait for the outcome")
	return cmd
}

func (f *flags) apply(ctx context.Context, o applyOptions, stdin io.Reader, stdout, stderr io.Writer) error {
	s, err := f.load()
	if err != nil {
		return err
	}
	want, err := o.input.read(s.Policy.Files, stdin)
	if err != nil {
		return err
	}
	want.Now = o.now
	if err := f.becomeServiceUser(); err != nil {
		return err
	}
	d, err := newDeps(f, stderr)
	if err != nil {
		return err
	}
	defer d.close()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	p, err := d.preview(ctx, s, want)
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, p)
	switch {
	case o.dryRun && !p.Empty():
		return process.Exit{Code: exitPending}
	case o.dryRun:
		return nil
	case len(want.Entries) == 0:
		return errNothingToApply
	}
	a := &state.Applied{ID: rand.Text(), Source: o.input.file, At: time.Now().UTC(), Now: o.now}
	for _, e := range want.Entries {
		a.Files = append(a.Files, state.AppliedFile{Key: e.Key, Data: e.Data})
	}
	for id := range want.Listed {
		a.Lists = append(a.Lists, id)
	}
	slices.Sort(a.Lists)
	st, err := d.carryOut(ctx, f, s, a)
	if err != nil {
		return err
	}
	return printOutcome(stdout, st, want)
}

// preview is the plan for d over what this host remembers of the ControllerConfig.
func (d *deps) preview(ctx context.Context, s config.Settings, want plan.Desired) (plan.Plan, error) {
	st, store, err := d.loadState()
	if err != nil {
		return plan.Plan{}, err
	}
	var base plan.Desired
	remember := revalidate(s.Policy)
	for _, r := range st.LastGood {
		data, err := store.Content(r)
		if err != nil {
			continue // it is not there to be kept
		}
		if e, err := remember(r.Key, data); err == nil {
			base.Entries = append(base.Entries, e)
		}
	}
	return files.Preview(ctx, d.privileged(s), want.Over(base, s.Policy.Policy), st.Memory, d.policy(s).Policy, moment())
}

// carryOut has the service do it if one runs, or does it here.
func (d *deps) carryOut(ctx context.Context, f *flags, s config.Settings, a *state.Applied) (report.Status, error) {
	dir, release, err := d.lockState()
	if errors.Is(err, disk.ErrLocked) {
		if err := state.SetOverrides(dir, state.Overrides{Applied: a}); err != nil {
			return report.Status{}, err
		}
		return d.awaitService(ctx, a)
	}
	if err != nil {
		return report.Status{}, err
	}
	defer release()
	overrides := state.Overrides{Applied: a}
	if !d.plain {
		// The service shall find it in force when it starts. A tree that becomes an image shall not.
		if err := state.SetOverrides(dir, overrides); err != nil {
			return report.Status{}, err
		}
	}
	v := &service{flags: f, deps: d, stateDir: dir, store: state.Open(dir)}
	once := v.agent(s, noWatcher{}) // without a source, and with this override and no other
	once.Overrides = func(state.Overrides) (state.Overrides, error) { return overrides, nil }
	return once.Once(ctx)
}

// statusPollInterval is how often the status of the service is looked at: its file has no event that reaches
// an unprivileged reader reliably.
const statusPollInterval = 50 * time.Millisecond

// awaitService waits until the service has taken up what was applied.
func (d *deps) awaitService(ctx context.Context, a *state.Applied) (report.Status, error) {
	tick := time.NewTicker(statusPollInterval)
	defer tick.Stop()
	for {
		if st, err := currentStatus(d.tree); err == nil && st.HasApplied(a.ID) && (!a.Now || !st.Acting()) {
			return st, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return report.Status{}, errors.New("it is left for the service, which has not finished with it in time; " +
				"'node-cert-agent status' shows how far it is")
		}
	}
}

// printOutcome says what came of it.
func printOutcome(w io.Writer, st report.Status, d plan.Desired) error {
	for _, u := range st.Units {
		if !u.State.Settled() {
			fmt.Fprintln(w, strings.TrimSuffix(fmt.Sprintf("unit    %s %s: %s", u.Verb, u.Name, join(u.State, u.Reason)), ": "))
		}
	}
	if st.Error != "" {
		return fmt.Errorf("not all could be done: %s", st.Error)
	}
	if len(d.Refused) > 0 {
		return fmt.Errorf("applied, but for what was refused: %d of %d", len(d.Refused), len(d.Refused)+len(d.Entries))
	}
	fmt.Fprintln(w, "applied")
	return nil
}

// confirm has the service that runs do at once what is asked for anyway: an operator says that what goes
// is meant to go. It holds until something else is asked for.
func (f *flags) confirm(ctx context.Context, timeout time.Duration, stdout, stderr io.Writer) error {
	dir, err := f.ownState()
	if err != nil {
		return err
	}
	release, err := dir.Lock()
	if err == nil {
		release()
		return errNoService
	}
	if !errors.Is(err, disk.ErrLocked) {
		return err
	}
	d, err := newDeps(f, stderr)
	if err != nil {
		return err
	}
	defer d.close()
	overrides, err := state.ReadOverrides(dir, state.Overrides{})
	if err != nil {
		return err
	}
	st, err := currentStatus(d.tree)
	if err != nil {
		return err
	}
	a := state.Applied{Source: "the ControllerConfig, at once"}
	if before := overrides.Applied; before != nil && st.HasApplied(before.ID) && st.Override.State == report.InForce {
		a = *before
	}
	a.ID, a.At, a.Now = rand.Text(), time.Now().UTC(), true
	if err := state.SetOverrides(dir, state.Overrides{Applied: &a}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if st, err = d.awaitService(ctx, &a); err != nil {
		return err
	}
	printHeld(stdout, st.Held)
	return printOutcome(stdout, st, plan.Desired{})
}

func printHeld(w io.Writer, held []report.Held) {
	for _, h := range held {
		fmt.Fprintf(w, "hold    %s: %s\n", h.Key.String(), h.Reason)
	}
}

// revert takes back what was applied. A service that runs notices.
func (f *flags) revert(stdout io.Writer) error {
	dir, err := f.ownState()
	if err != nil {
		return err
	}
	done, err := state.Revert(dir)
	if err == nil && !done {
		fmt.Fprintln(stdout, "nothing was applied")
	} else if err == nil {
		fmt.Fprintln(stdout, "reverted: the ControllerConfig wins again")
	}
	return err
}
