// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
)

// credential is somebody as whom a certificate may be asked for. A name and a content make one.
type credential struct {
	name, content string
	// digest is set for what can be consumed.
	digest string
	config apiserver.Config
	link   *apiserver.Conn
	// announced is set for the one that leads where a hint says.
	announced bool
	// refused is until when it is left alone, and why for what reason.
	refused time.Time
	why     string
}

// ladder holds the credentials that can be tried, best first.
type ladder struct {
	rungs []*credential
	at    int
	// connect makes a link.
	connect func(apiserver.Config) (*apiserver.Conn, error)
	// pinned is set if pins say which CAs will do, so that a file may state none.
	pinned bool
	// faults says what is wrong with the files that are no rungs.
	faults []string
}

// bootstrapDir is where relative paths in a bootstrap file start.
const bootstrapDir = "/etc/node-cert-agent/bootstrap.d"

// climb replaces the rungs: those in first, unless they are nil, then the files. known is the
// cluster that pairs are for, nil if there is none. It reports the files that are new. What is known of
// a file stays known while its content is the same.
func (l *ladder) climb(first []*credential, files []File, known *apiserver.Cluster) (fresh []*credential, refused []File) {
	rungs := slices.DeleteFunc(first, func(c *credential) bool { return c == nil })
	l.faults = nil
	for _, f := range files {
		c := l.find(f.Name, f.Digest)
		if c != nil && c.config.CAChanged() {
			c = nil // with other CAs it is as good as another file
		}
		if c == nil {
			var err error
			if c, err = l.credential(f, known); err != nil {
				f.Refused = err.Error()
				refused = append(refused, f)
				l.faults = append(l.faults, f.Name+": "+f.Refused)
				continue
			}
			fresh = append(fresh, c)
		}
		rungs = append(rungs, c)
	}
	for _, c := range l.rungs {
		if !slices.Contains(rungs, c) {
			c.link.Close()
		}
	}
	if l.rungs = rungs; l.at >= len(rungs) {
		l.at = 0
	}
	return fresh, refused
}

func (l *ladder) find(name, content string) *credential {
	i := slices.IndexFunc(l.rungs, func(c *credential) bool { return c.name == name && c.content == content })
	if i < 0 {
		return nil
	}
	return l.rungs[i]
}

func (l *ladder) credential(f File, known *apiserver.Cluster) (*credential, error) {
	if f.Refused != "" {
		return nil, errors.New(f.Refused)
	}
	c := &credential{name: f.Name, content: f.Digest, digest: f.Digest}
	var err error
	if f.Pair {
		c.digest = ""
		c.config, err = asPair(f, known)
	} else {
		c.config, err = apiserver.Parse(f.Content.Reveal(), bootstrapDir, l.pinned)
	}
	if err != nil {
		return nil, err
	}
	c.link, err = l.connect(c.config)
	return c, err
}

// asPair is how to speak to the known cluster with somebody else's certificate.
func asPair(f File, known *apiserver.Cluster) (apiserver.Config, error) {
	if known == nil {
		return apiserver.Config{}, errors.New("says nothing of a cluster, and none is known")
	}
	return known.Config(f.Content.Reveal(), f.Content.Reveal())
}

// next is the credential to try now, or nil if none is left for the moment.
func (l *ladder) next(now time.Time) *credential {
	for i := range l.rungs {
		c := l.rungs[(l.at+i)%len(l.rungs)]
		if !now.Before(c.refused) {
			return c
		}
	}
	return nil
}

// pass lets another rung be tried after c.
func (l *ladder) pass(c *credential) {
	if i := slices.Index(l.rungs, c); i >= 0 {
		l.at = (i + 1) % len(l.rungs)
	}
}

// why explains that next is nil.
func (l *ladder) why() string {
	all := slices.Clone(l.faults)
	for _, c := range l.rungs {
		all = append(all, c.name+": "+c.why)
	}
	if len(all) == 0 {
		return "there is no bootstrap file"
	}
	return strings.Join(all, "; ")
}
