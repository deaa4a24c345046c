// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/log"
)

// newLog is the diagnostic log. In plain mode there is no journal. The audit trail is not part of it.
func newLog(f *flags, stderr io.Writer) *zap.Logger {
	if !f.plain() && log.InJournal() {
		return log.Journal(audit.Identifier, f.log, stderr)
	}
	return log.Lines(f.log, stderr)
}
