// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/host"
)

const (
	reloadTemplate = "reloaded@.service"
	reloadBinary   = "/usr/local/bin/reload"
	reloadFragment = "/etc/node-cert-agent/config.d/60-reload.yaml"
	// reloadBatch reloads follow one another, each of another unit: the reloader bounds how often it acts on one.
	reloadBatch = 20
)

// hostFile is a text on the host.
type hostFile struct{ path, text string }

var reloadUnit = hostFile{"/etc/systemd/system/" + reloadTemplate, "[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n"}

// reload is the time from the request to the end of the job: the agent's way, as its user and through the
// reloader, and a person's, as root with systemctl. Short batches of both take turns.
func reload(ctx context.Context, b *bed, p plan, t *table) (err error) {
	units := make([]string, reloadBatch+1) // the first is not counted
	var allowed strings.Builder
	for i := range units {
		units[i] = strings.Replace(reloadTemplate, "@", "@"+strconv.Itoa(i), 1)
		fmt.Fprintf(&allowed, "  %s: {verb: reload}\n", units[i])
	}
	if _, err := b.Host.Run(ctx, append([]string{"systemctl", "start"}, units...)...); err != nil {
		return err
	}
	text := "apiVersion: config.node-cert-agent.io/v1alpha1\nunits:\n" + allowed.String()
	if err := b.Host.PutFile(reloadFragment, host.File{Data: []byte(text)}); err != nil {
		return err
	}
	defer func() {
		if _, failed := b.Host.Run(ctx, "rm", reloadFragment); err == nil {
			err = failed
		}
	}()
	times := map[string]samples{}
	for range (p.reloads + reloadBatch - 1) / reloadBatch {
		byHand, err := b.Host.Run(ctx, append([]string{reloadBinary, "-hand"}, units...)...)
		if err != nil {
			return err
		}
		byAgent, err := b.Host.RunAs(ctx, "node-cert-agent", append([]string{reloadBinary}, units...)...)
		if err != nil {
			return err
		}
		for name, out := range map[string]string{"floor": byHand, "agent": byAgent} {
			for field := range strings.FieldsSeq(out) {
				ns, err := strconv.ParseInt(field, 10, 64)
				if err != nil {
					return fmt.Errorf("the program that reloads printed %q", field)
				}
				times[name] = append(times[name], time.Duration(ns))
			}
		}
	}
	t.compare("reload asked for -> job done (floor: systemctl reload)", times, map[string]float64{"p50": 1.0, "p95": 1.0})
	return nil
}
