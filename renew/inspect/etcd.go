// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// Etcd is what a client of etcd needs beside a key. Certificates are in DER.
type Etcd struct {
	// Pair is the name of the client's, and Chain what is in its file.
	Pair  string   `json:"pair"`
	Chain [][]byte `json:"chain"`
	// Authorities are those that servers may have.
	Authorities [][]byte `json:"authorities"`
	// Addresses are host:port.
	Addresses []string `json:"addresses"`
	// Elsewhere says that no member is of this host.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// Etcd says how this host can ask etcd, whose pairs were seen; nil if it cannot.
func (h Host) Etcd(all []pair.Facts) *Etcd {
	f, ok := pair.EtcdClient(all)
	if !ok {
		return nil
	}
	_, here := pair.EtcdServer(all)
	e := &Etcd{Pair: f.Name, Elsewhere: !here}
	for _, t := range f.Targets {
		e.Addresses = append(e.Addresses, t.Address)
	}
	for name, to := range map[string]*[][]byte{f.Cert: &e.Chain, f.CA.Path: &e.Authorities} {
		text, err := h.read(name)
		if err != nil {
			return nil
		}
		for _, c := range pair.Certificates(text.data) {
			*to = append(*to, c.Raw)
		}
	}
	return e
}
