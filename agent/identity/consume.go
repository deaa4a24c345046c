// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
)

// consume takes the credential that the identity came from out of use. It is tried again at the next
// look if it fails or the agent is killed before it: the identity remembers where it came from. If it is killed
// after it, the record is missing here; the writer has left its own before.
func (k *Keeper) consume(ctx context.Context) {
	if k.consumed || k.current == nil || k.opt.Bootstrap == nil {
		return
	}
	done, err := k.opt.Bootstrap.Consume(ctx, k.current.Credential)
	if k.leftover = ""; err != nil {
		k.leftover = "the bootstrap credential that has served is still there: " + err.Error()
		return
	}
	if done != "" {
		k.tell(audit.CredentialConsumed, "the bootstrap credential has served: "+done, audit.Field{Name: audit.Credential, Value: k.current.Credential})
	}
	// The same content may come again, and then it is there to be used.
	settled := *k.current
	settled.Credential = ""
	if err := k.store.write(currentFile, &settled); err != nil {
		k.leftover = err.Error()
		return
	}
	k.current, k.consumed = &settled, true
}
