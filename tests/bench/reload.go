// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	agentplan "github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/units"
)

const (
	reloadName   = "reloaded.service"
	reloadBinary = "/usr/local/bin/reloader"
	reloadBatch  = 20
)

// hostFile is a text on the host.
type hostFile struct{ path, text string }

var (
	reloadUnit = hostFile{"/etc/systemd/system/" + reloadName, "[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n"}
	// The rule comes before the agent's own, whose allowlist is empty here.
	reloadRule = hostFile{"/etc/polkit-1/rules.d/40-bench.rules", units.PolkitRule("node-cert-agent", []agentplan.Unit{{Name: reloadName, Verb: agentplan.Reload}})}
)

// reload is the time from the request to the end of the job: the agent's way, as its user and so with
// polkit's consent, and a person's, as root with systemctl. Short batches of both take turns.
func reload(ctx context.Context, b *bed, p plan, t *table) error {
	if _, err := b.Host.Run(ctx, "systemctl", "start", reloadName); err != nil {
		return err
	}
	times := map[string]samples{}
	for range (p.reloads + reloadBatch - 1) / reloadBatch {
		byHand, err := b.Host.Run(ctx, reloadBinary, "-hand", "-n", strconv.Itoa(reloadBatch), reloadName)
		if err != nil {
			return err
		}
		byAgent, err := b.Host.RunAs(ctx, "node-cert-agent", reloadBinary, "-n", strconv.Itoa(reloadBatch), reloadName)
		if err != nil {
			return err
		}
		for name, out := range map[string]string{"floor": byHand, "agent": byAgent} {
			for field := range strings.FieldsSeq(out) {
				ns, err := strconv.ParseInt(field, 10, 64)
				if err != nil {
					return fmt.Errorf("the reloader printed %q", field)
				}
				times[name] = append(times[name], time.Duration(ns))
			}
		}
	}
	t.compare("reload asked for -> job done (floor: systemctl reload)", times, map[string]float64{"p50": 1.3, "p95": 1.3})
	return nil
}
