// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"strconv"
)

// End is a host in a network, with its IPv4 address there.
type End struct {
	Host    *Host
	Address string
}

// Link makes a network of running hosts, with 256 addresses: each gets an interface eth0 with its address, and a default
// route that leads there, to nobody. The cables of all others lead to the first. It stays over Kill and Reboot. The
// machine needs ip(8).
func Link(ctx context.Context, ends ...End) error {
	first := ends[0].Host
	if err := first.ip(ctx, "link", "add", "eth0", "type", "bridge"); err != nil {
		return err
	}
	for i, end := range ends {
		if i > 0 {
			if err := first.plug(ctx, "port"+strconv.Itoa(i), end.Host); err != nil {
				return err
			}
		}
		for _, args := range [][]string{
			{"address", "add", end.Address + "/24", "dev", "eth0"}, {"link", "set", "eth0", "up"},
			{"route", "add", "default", "dev", "eth0"},
		} {
			if err := end.Host.ip(ctx, args...); err != nil {
				return err
			}
		}
	}
	return nil
}

// plug lays a cable from a port of this host's bridge to the eth0 of another one.
func (h *Host) plug(ctx context.Context, port string, other *Host) error {
	far, err := other.leader()
	if err != nil {
		return err
	}
	if err := h.ip(ctx, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(far)); err != nil {
		return err
	}
	return h.ip(ctx, "link", "set", port, "master", "eth0", "up")
}

// ip configures the host's network from outside: ip(8) need not be on the host.
func (h *Host) ip(ctx context.Context, args ...string) error {
	netns := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), h.netns.Fd())
	_, err := output(ctx, "nsenter", append([]string{netns, "ip"}, args...)...)
	if err != nil {
		err = fmt.Errorf("host %s: configure the network: %w", h.opts.Name, err)
	}
	return err
}
