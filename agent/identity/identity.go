// SPDX-License-Identifier: Apache-2.0

// Package identity is how the agent authenticates to the API server: from a bootstrap credential to a
// certificate of its own, its renewal, and back whenever it is lost (Keeper). Everybody else speaks through the one
// client of the Keeper, behind which the identity changes without a restart.
//
// It promises that a working identity stays until its successor has been proven on a fresh connection,
// that one key waits in one request however long nobody approves it, and that no bootstrap credential
// is consumed before the identity got with it is durable and proven. What is missing is a state with a
// reason. It decides nothing about files: credentials come from, and are consumed through, Bootstrap. Where
// the object announces another cluster, only our own certificate asks there. No secret is in an error.
//
// How a server is reached and verified is agent/apiserver's matter.
//
// Sources: the reference of CertificateSigningRequest and SelfSubjectReview in the Kubernetes API.
package identity

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
)

// Stored is the identity that a Keeper keeps in dir, for a short look beside it: it is neither renewed
// nor changed. The error matches fs.ErrNotExist if there is none.
func Stored(dir Dir, node string) (*apiserver.Conn, error) {
	data, err := dir.ReadFile(currentFile)
	if err != nil {
		return nil, err
	}
	g, err := decodeGeneration(data, node)
	if err != nil {
		return nil, fmt.Errorf("%s %v", currentFile, err)
	}
	c, err := g.config()
	if err != nil {
		return nil, fmt.Errorf("%s %v", currentFile, err)
	}
	conn, err := c.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %v", currentFile, err)
	}
	return conn, nil
}

// Reset sets the identity in dir aside, the pending key included, so that the next start begins anew
// with a bootstrap credential. It says what was set aside, and deletes nothing but what an earlier
// Reset had set aside. What was set aside goes once another identity has been proven.
func Reset(dir Dir) (aside []string, err error) {
	for _, name := range allFiles {
		switch err := dir.Rename(name, name+reset); {
		case err == nil:
			aside = append(aside, name+reset)
		case !errors.Is(err, fs.ErrNotExist):
			return aside, fmt.Errorf("setting %s aside: %v", name, err)
		}
	}
	return aside, nil
}
