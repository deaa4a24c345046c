// SPDX-License-Identifier: Apache-2.0

// Package collect sees what package check judges: the host's files and directories, the writer, systemd, the
// allowlist, the identity, the API server and the clock, each in a file of its own.
//
// It owns how a fact is come by, and judges nothing. It writes nothing, waits for no lock and may run beside the
// service. What only root may see is looked at first; everything else is then seen with the rights of the service,
// which are what counts. What cannot be seen is left out of the facts.
//
// Sources: proc(5), cgroups(7), resolv.conf(5), systemd.unit(5) for the load path of units, xattr(7).
package collect

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/check"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/reloader"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
)

// Options say which host is looked at, and how.
type Options struct {
	// Config says where the host's tree is, and Settings what was read there. Below a root of one's own there is
	// no systemd.
	Config   config.Options
	Settings config.Settings
	// Foreign is set if something else maintains the identity.
	Foreign bool
	// User is as whom the service runs.
	User string
	// Own are directories of ours, which tmpfiles.d makes.
	Own []string
	// Built is a time that has certainly passed; zero if nothing is known.
	Built time.Time
	// Dial says whom to ask, as whoever this process is when it is called.
	Dial func() (Access, error)
	// Become gives up being root for good.
	Become func() error
}

// Access is whom to ask, with the rights of who dialled.
type Access struct {
	Writer Writer
	// Systemd is the reloader. Below a root of one's own it is not asked.
	Systemd Systemd
	// Status is what the service last published.
	Status func() (report.Status, error)
	// Identity is as whom the service of this node speaks to the API server.
	Identity func(node string) (*apiserver.Conn, error)
	// Close ends all connections.
	Close func()
}

// Writer is the process that changes files.
type Writer interface {
	Observe(context.Context, []plan.Query) ([]plan.File, error)
}

// Systemd is what the reloader tells of it.
type Systemd interface {
	Version(context.Context) (string, error)
	Look(ctx context.Context, units ...string) ([]reloader.Seen, error)
}

// Facts goes over the host twice: as root, if we are, for what only root may see, and then as the service. It fails
// if it cannot dial or become the service's user.
func Facts(ctx context.Context, o Options) (check.Facts, error) {
	s := o.Settings
	c := collector{opt: o, facts: check.Facts{Plain: o.Config.Root != "/", Root: os.Geteuid() == 0, Now: time.Now(),
		Profile: s.Profile, Sources: s.Files, Policy: s.Policy}}
	var err error
	if c.access, err = o.Dial(); err != nil {
		return c.facts, err
	}
	defer func() { c.access.Close() }()
	c.node()
	c.host()
	c.resolver()
	c.directories()
	c.managed(ctx)
	c.mounts()
	if !c.facts.NoUser {
		if err := o.Become(); err != nil {
			return c.facts, err
		}
	}
	again, err := o.Dial()
	if err != nil {
		return c.facts, err
	}
	c.access.Close() // these connections are root's
	c.access = again
	c.status()
	c.ask(ctx)
	c.systemd(ctx)
	c.api(ctx)
	c.clock()
	return c.facts, nil
}

// collector fills the facts, thing by thing.
type collector struct {
	opt    Options
	access Access
	facts  check.Facts
}

// on is where a path of the host is for us.
func (c *collector) on(path string) string { return filepath.Join(c.opt.Config.Root, path) }

func (c *collector) node() {
	name, err := config.NodeName(c.opt.Config, c.opt.Settings)
	c.facts.Node.Name, c.facts.Node.Problem = name, problem(err)
}

func problem(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
