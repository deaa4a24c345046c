// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/node-cert-agent/node-cert-agent/agent/config"

// configCache keeps what was made of the configuration until that changes. The privileged processes have no inotify
// and no timer, so they look when they are asked for something.
type configCache[T any] struct {
	options config.Options
	from    func(config.Settings) T
	seen    uint64
	made    *T
}

func (c *configCache[T]) load() (T, error) {
	var none T
	seen, err := c.options.Stamp()
	if err != nil {
		return none, err
	}
	if c.made != nil && seen == c.seen {
		return *c.made, nil
	}
	s, err := config.Load(c.options)
	if err != nil {
		return none, err
	}
	made := c.from(s)
	c.seen, c.made = seen, &made
	return made, nil
}
