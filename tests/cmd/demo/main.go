// SPDX-License-Identifier: Apache-2.0

// Command demo does the agent's main job on real parts and tells it as it happens: from a token to an
// identity, first bundle, rotation, reload, refusal, broken bundles, drift, status and audit trail.
//
// As root the parts are a Kubernetes control plane and a host with systemd in a container. As an
// ordinary user, or with -plain, they are the same control plane and a folder, and the demo says
// what is then left out. Every line that begins with "$ " is a command that was really run, on that
// host or in that folder, and is followed by what it printed; "cluster$ " is the same beside the control
// plane.
//
// It promises to leave nothing behind, whether it succeeds, fails or is interrupted. A step that does
// not come about within a bound is named, and the exit code is 1; after Ctrl-C it is 130. With -keep
// everything stays up until Ctrl-C, which is then the proper end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const exitInterrupted = 130

func main() {
	keep := flag.Bool("keep", false, "leave everything running until Ctrl-C, and say how to use it")
	plain := flag.Bool("plain", os.Geteuid() != 0, "use a folder instead of a host, as for ordinary users")
	binaries := flag.String("bin", "", "with -plain: use agent and approver in this `DIR` instead of building them")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	// SIGPIPE too: whoever reads us may be head(1).
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGPIPE)
	err := play(ctx, newTranscript(os.Stdout), options{keep: *keep, plain: *plain, binaries: *binaries})
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted:
		fmt.Fprintf(os.Stderr, "demo: interrupted (%v)\n", err)
		os.Exit(exitInterrupted)
	default:
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	keep, plain bool
	binaries    string
}

// play sets the stage, tells the story and clears the stage, whatever happened.
func play(ctx context.Context, t *transcript, o options) (err error) {
	set := setHost
	if o.plain {
		set = func(ctx context.Context, t *transcript) (stage, error) { return setFolder(ctx, t, o.binaries) }
	}
	s, err := set(ctx, t)
	if err != nil {
		return err
	}
	defer func() {
		t.say("Stopping and removing everything.")
		if left := s.stop(); left != nil {
			err = errors.Join(err, fmt.Errorf("clearing up: %w", left))
		}
	}()
	told := newStory(t, s)
	defer func() { told.approver.Stop() }()
	if err := told.tell(ctx); err != nil || !o.keep {
		return err
	}
	return keep(ctx, t, s)
}
