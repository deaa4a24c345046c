// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
)

var errNoSocket = errors.New("no listening socket was passed to this process")

// inherited is the one socket that systemd listens on for us. activation.Listeners would not say why it is none.
func inherited() (*net.UnixListener, error) {
	files := activation.Files(true)
	if len(files) != 1 {
		return nil, errNoSocket
	}
	file := files[0]
	defer func() { _ = file.Close() }()
	ln, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("taking over the socket: %v", err)
	}
	unix, ok := ln.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("taking over the socket: it is %s, not a Unix socket", ln.Addr().Network())
	}
	return unix, nil
}

// serviceSocket is the inherited socket, and who may connect to it: the service's user, or root.
func serviceSocket() (ln *net.UnixListener, admitted func(peer uint32) bool, err error) {
	return socketFor(serviceUser)
}

// socketFor is serviceSocket for another user than the agent's.
func socketFor(name string) (ln *net.UnixListener, admitted func(peer uint32) bool, err error) {
	uid, _, err := idsOf(name)
	if err != nil {
		return nil, nil, err
	}
	ln, err = inherited()
	return ln, func(peer uint32) bool { return peer == 0 || peer == uint32(uid) }, err
}

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
