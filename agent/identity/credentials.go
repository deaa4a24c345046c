// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// requester is a credential that may request a certificate: a bootstrap credential, or an identity of ours, which has a
// name and no digest.
type requester struct {
	bootstrap.ID
	content string // what was the content when the connection was made
	config  apiserver.Config
	conn    *apiserver.Conn
	// announced is set for the one that leads where a hint says.
	announced bool
	// refused is until when it is left alone, and why for what reason.
	refused time.Time
	why     string
}

// consumable tells what leads here as a file does, and is taken out of use when it has served.
func (r *requester) consumable() bool { return r.Digest != (plan.Digest{}) }

// credentials are those that can be tried, best first.
type credentials struct {
	list []*requester
	at   int // in list, which is tried next
	// connect opens a connection.
	connect func(apiserver.Config) (*apiserver.Conn, error)
	// pinned is set if pins say which CAs will do, so that a file may state none.
	pinned bool
	// faults says what is wrong with the files that are not in list.
	faults []string
	// polled is when the files were last asked for.
	polled time.Time
	// reported are the refusals that are on record.
	reported map[string]bool
	// consumed is set once nothing is left to be consumed, and cleanupError says why that is not so.
	consumed     bool
	cleanupError string
}

// bootstrapDir is where relative paths in a bootstrap file start.
const bootstrapDir = "/etc/node-cert-agent/bootstrap.d"

// refresh replaces the list: those in first, unless they are nil, then the files. known is the
// cluster that pairs are for, nil if there is none. It reports the files that are new. What is known of
// a file stays known while its content is the same.
func (all *credentials) refresh(first []*requester, files []bootstrap.Credential, known *apiserver.Cluster) (
	fresh []*requester, refused []bootstrap.Credential) {
	list := slices.DeleteFunc(first, func(c *requester) bool { return c == nil })
	all.faults = nil
	for _, f := range files {
		c := all.find(f.Name, f.Digest.String())
		if c != nil && c.config.CAChanged() {
			c = nil // with other CAs it is as good as another file
		}
		if c == nil {
			var err error
			if c, err = all.requester(f, known); err != nil {
				f.Refused = err.Error()
				refused = append(refused, f)
				all.faults = append(all.faults, f.Name+": "+f.Refused)
				continue
			}
			fresh = append(fresh, c)
		}
		list = append(list, c)
	}
	for _, c := range all.list {
		if !slices.Contains(list, c) {
			c.conn.Close()
		}
	}
	all.list = list
	if all.at >= len(list) {
		all.at = 0
	}
	return fresh, refused
}

func (all *credentials) find(name, content string) *requester {
	i := slices.IndexFunc(all.list, func(c *requester) bool { return c.Name == name && c.content == content })
	if i < 0 {
		return nil
	}
	return all.list[i]
}

func (all *credentials) requester(f bootstrap.Credential, known *apiserver.Cluster) (*requester, error) {
	if f.Refused != "" {
		return nil, errors.New(f.Refused)
	}
	c := &requester{ID: f.ID, content: f.Digest.String()}
	var err error
	if f.Name == bootstrap.Kubelet {
		c.Digest = plan.Digest{}
		c.config, err = asPair(f, known)
	} else {
		c.config, err = apiserver.Parse(f.Content.Reveal(), bootstrapDir, all.pinned)
	}
	if err != nil {
		return nil, err
	}
	c.conn, err = all.connect(c.config)
	return c, err
}

// asPair is the configuration for the known cluster with the kubelet's certificate.
func asPair(f bootstrap.Credential, known *apiserver.Cluster) (apiserver.Config, error) {
	if known == nil {
		return apiserver.Config{}, errors.New("says nothing of a cluster, and none is known")
	}
	return known.Config(f.Content.Reveal(), f.Content.Reveal())
}

// next is the credential to try now, or nil if none is left for the moment.
func (all *credentials) next(now time.Time) *requester {
	for i := range all.list {
		c := all.list[(all.at+i)%len(all.list)]
		if !now.Before(c.refused) {
			return c
		}
	}
	return nil
}

// skip lets another one be tried after c.
func (all *credentials) skip(c *requester) {
	if i := slices.Index(all.list, c); i >= 0 {
		all.at = (i + 1) % len(all.list)
	}
}

// why explains that next is nil.
func (all *credentials) why() string {
	reasons := slices.Clone(all.faults)
	for _, c := range all.list {
		reasons = append(reasons, c.Name+": "+c.why)
	}
	if len(reasons) == 0 {
		return "there is no bootstrap file"
	}
	return strings.Join(reasons, "; ")
}
