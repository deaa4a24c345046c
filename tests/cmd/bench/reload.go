// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
)

const (
	reloadTemplate = "reloaded@.service"
	reloadBinary   = "/usr/local/bin/reload"
	allowlist      = "/etc/node-cert-agent/config.d/60-allowlist.yaml"
	// reloadBatch reloads follow one another, each of another unit: the reloader bounds how often it acts on one.
	reloadBatch = 20
)

// hostFile is a text on the host.
type hostFile struct{ path, text string }

var reloadUnit = hostFile{"/etc/systemd/system/" + reloadTemplate,
	"[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n"}

// reload is the time from the request to the end of the job: the agent's way, as its user and through the
// reloader, and a person's, as root with systemctl. Short batches of both take turns.
func reload(ctx context.Context, e *env, p plan, t *figures.Table) (err error) {
	units := make([]string, reloadBatch+1) // the first is not counted
	for i := range units {
		units[i] = strings.Replace(reloadTemplate, "@", "@"+strconv.Itoa(i), 1)
	}
	if err := e.allow(ctx, units...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.disallow(ctx)) }()
	times := map[string]figures.Samples{}
	for range (p.reloads + reloadBatch - 1) / reloadBatch {
		byHand, err := e.Host.Run(ctx, append([]string{reloadBinary, "-hand"}, units...)...)
		if err != nil {
			return err
		}
		byAgent, err := e.Host.RunAs(ctx, "node-cert-agent", append([]string{reloadBinary}, units...)...)
		if err != nil {
			return err
		}
		for name, out := range map[string]string{"baseline": byHand, "agent": byAgent} {
			for field := range strings.FieldsSeq(out) {
				ns, err := strconv.ParseInt(field, 10, 64)
				if err != nil {
					return fmt.Errorf("the program that reloads printed %q", field)
				}
				times[name] = append(times[name], time.Duration(ns))
			}
		}
	}
	t.Compare("reload asked for -> job done (baseline: systemctl reload)", times, map[string]float64{"p50": 1.0, "p95": 1.0})
	return nil
}

// allow starts units and puts a reload of each on the allowlist.
func (e *env) allow(ctx context.Context, units ...string) error {
	if _, err := e.Host.Run(ctx, append([]string{"systemctl", "start"}, units...)...); err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString("apiVersion: config.node-cert-agent.io/v1alpha1\nunits:\n")
	for _, u := range units {
		fmt.Fprintf(&text, "  %s: {verb: reload}\n", u)
	}
	return e.Host.PutFile(allowlist, host.File{Data: []byte(text.String())})
}

// disallow empties the allowlist.
func (e *env) disallow(ctx context.Context) error {
	_, err := e.Host.Run(ctx, "rm", allowlist)
	return err
}
