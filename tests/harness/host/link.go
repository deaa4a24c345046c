// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"strconv"
)

// Link lays a cable between two running hosts: each gets an interface eth0 with its IPv4 address, in one network of
// 256 addresses, and a default route that leads there, to nobody. It stays over Kill and Reboot. The machine needs
// ip(8).
func Link(ctx context.Context, a *Host, addressA string, b *Host, addressB string) error {
	far, err := b.leader()
	if err != nil {
		return err
	}
	err = a.ip(ctx, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(far))
	for _, end := range []struct {
		h       *Host
		address string
	}{{a, addressA}, {b, addressB}} {
		for _, args := range [][]string{
			{"address", "add", end.address + "/24", "dev", "eth0"}, {"link", "set", "eth0", "up"},
			{"route", "add", "default", "dev", "eth0"},
		} {
			if err == nil {
				err = end.h.ip(ctx, args...)
			}
		}
	}
	return err
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
