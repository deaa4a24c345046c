// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// restart kills the API server, starts it at once, and is how long after it is ready all nodes have written an update
// that was made then, and how many requests that took. A refused connection counts as a request.
func restart(ctx context.Context, e *env) error {
	logged, err := e.asked.Length()
	if err != nil {
		return err
	}
	before, err := e.refusals()
	if err != nil {
		return err
	}
	killed := time.Now()
	if err := e.plane.StopAPIServer(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	if err := e.plane.StartAPIServer(ctx); err != nil {
		return err
	}
	ready := time.Now()
	e.table.Note("API server killed -> ready again", "%.1f s", ready.Sub(killed).Seconds())
	e.files.round(e.n)
	updating, cancel := context.WithTimeout(ctx, e.options.limit)
	defer cancel()
	if err := wait.Success(updating, func() error {
		_, err := e.update(updating)
		return err
	}); err != nil {
		return fmt.Errorf("an update after the restart: %w", err)
	}
	at, err := e.files.wait(ctx, "all in step", e.options.limit)
	if err != nil {
		return err
	}
	e.table.Note("ready -> update written", "%v", figures.Since(ready, at))
	e.table.Judge("  last", figures.Since(ready, at).Seconds(1), 20, "s")
	asked, err := e.asked.Since(logged)
	if err != nil {
		return err
	}
	now, err := e.refusals()
	if err != nil {
		return err
	}
	each := float64(asked.Without("nodecertificatestates").Total()+now-before) / float64(e.n)
	e.table.Judge("  requests each, but for reports", each, 3, "")
	e.table.Note("  of these refused connections, those of controllers included", "%d", now-before)
	for _, line := range asked.Lines() {
		e.table.Note("  requests", "%s", line)
	}
	return nil
}

// refusals is how many connections of this machine have failed since it booted, AttemptFails of proc_net_snmp(5),
// without our own as the administrator.
func (e *env) refusals() (int, error) {
	text, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		return 0, err
	}
	all, err := attemptFails(string(text))
	return all - int(e.ours.Load()), err
}

// countOurs has the administrator's connections that fail counted.
func (e *env) countOurs() {
	dial := (&net.Dialer{}).DialContext
	e.admin.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			e.ours.Add(1)
		}
		return c, err
	}
}

func attemptFails(snmp string) (int, error) {
	var names []string
	for line := range strings.Lines(snmp) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "Tcp:" {
			continue
		}
		for i, name := range names {
			if name == "AttemptFails" && i < len(words) {
				return strconv.Atoi(words[i])
			}
		}
		names = words
	}
	return 0, fmt.Errorf("no AttemptFails in %d bytes of /proc/net/snmp", len(snmp))
}
