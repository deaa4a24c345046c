// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// lookTimeout bounds the question to one server.
const lookTimeout = 5 * time.Second

// served asks a pair's servers for what they show.
func (r *Renewer) served(ctx context.Context, f pair.Facts) (all []pair.Served) {
	for _, address := range f.Addresses {
		all = append(all, look(ctx, r.Leaf, address))
	}
	return all
}

// look asks one server.
func look(ctx context.Context, ask func(context.Context, string) ([]byte, error), address string) pair.Served {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s := pair.Served{Address: address}
	der, err := ask(ctx, address)
	if err != nil {
		s.Problem = err.Error()
		return s
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		s.Problem = "what it serves cannot be read"
		return s
	}
	s.Leaf = pair.Describe(leaf)
	return s
}
