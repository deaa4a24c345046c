// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/source"
	"github.com/node-cert-agent/node-cert-agent/agent/writer"
)

// hints says what to type next. It is the only place that does: errors carry facts.
func hints(err error) []string {
	var bad *config.Error
	switch {
	case errors.As(err, &bad):
		return []string{"nothing was changed; correct the file and start again. " +
			"/usr/share/node-cert-agent/profiles/standalone.yaml lists every key with its default"}
	case errors.Is(err, disk.ErrLocked):
		return []string{"the service has to be stopped for this: systemctl stop node-cert-agent"}
	case errors.Is(err, errNoStatus):
		return []string{"is it running? systemctl status node-cert-agent",
			"for a tree in plain mode: node-cert-agent status --root DIR"}
	case errors.Is(err, errNoService):
		return []string{"start it: systemctl start node-cert-agent",
			"or say what is wanted here: node-cert-agent apply -f FILE --now"}
	case errors.Is(err, errNoState):
		return []string{"systemd makes it: systemctl start node-cert-agent"}
	case writer.Unavailable(err):
		return []string{"systemd starts the writer when it is asked: systemctl start node-cert-agent-writer.socket"}
	case errors.Is(err, source.ErrNoIdentity):
		return []string{"node-cert-agent status says how far it has come; " +
			"put a kubeconfig with a bootstrap token into /etc/node-cert-agent/bootstrap.d",
			"or name one that something else maintains: --kubeconfig FILE"}
	case errors.Is(err, errNoSocket):
		return []string{"systemd starts it, through a socket unit of its name, and nobody by hand",
			"to try the agent without systemd: node-cert-agent run --root DIR"}
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return []string{"as an ordinary user, try it on a tree of your own: --root DIR"}
	}
	return nil
}
