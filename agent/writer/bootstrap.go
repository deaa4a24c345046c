// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// The directory of the bootstrap credentials, which only we can read, and the names in it.
const (
	bootstrapDir    = "/etc/node-cert-agent/bootstrap.d"
	bootstrapSuffix = ".kubeconfig"
	tombstoneSuffix = ".consumed"
)

// Consume says what happens to a bootstrap credential that has served.
type Consume string

// The ways to take a credential out of use. A tombstone is a file beside it with its digest: the
// credential stays where something else wants it to be, and is not handed out again.
const (
	Delete    Consume = "delete"
	Tombstone Consume = "tombstone"
	Keep      Consume = "keep"
)

// Credential is one bootstrap file: its content, or why it is not handed out.
type Credential struct {
	Name    string
	Digest  plan.Digest
	Content secret.Bytes
	Refused string
}

// WithConsume is l with another way to consume credentials than Keep.
func (l *Local) WithConsume(c Consume) *Local {
	other := *l
	other.consume = c
	return &other
}

// Bootstrap gives the bootstrap credentials by file name, without those that are consumed.
func (l *Local) Bootstrap(ctx context.Context) ([]Credential, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	files, err := l.tree.Private(bootstrapDir, bootstrapSuffix)
	if err != nil {
		return nil, failure(err)
	}
	tombs, err := l.tree.Private(bootstrapDir, tombstoneSuffix)
	if err != nil {
		return nil, failure(err)
	}
	buried := make(map[string]string, len(tombs))
	for _, t := range tombs {
		buried[t.Name] = strings.TrimSpace(string(t.Data))
	}
	var out []Credential
	for _, f := range files {
		c := Credential{Name: f.Name, Refused: f.Refused, Content: secret.New(f.Data)}
		if f.Refused == "" {
			c.Digest = plan.DigestOf(f.Data)
		}
		if digest := buried[f.Name+tombstoneSuffix]; digest == "" || digest != c.Digest.String() {
			out = append(out, c)
		}
	}
	return out, nil
}

// Consume takes the credential with this digest out of use, and says what was done; nothing if there
// is no such credential, or if credentials are kept.
func (l *Local) Consume(ctx context.Context, digest plan.Digest) (done string, err error) {
	all, err := l.Bootstrap(ctx)
	if err != nil {
		return "", err
	}
	for _, c := range all {
		if c.Refused != "" || c.Digest != digest {
			continue
		}
		target := disk.Target{Path: path.Join(bootstrapDir, c.Name), Mode: 0o600, UID: -1, GID: -1}
		switch l.consume {
		case Delete:
			err = l.tree.Commit(nil, []disk.Removal{{Target: target, Digest: digest}})
			done = c.Name + " deleted"
		case Tombstone:
			target.Path += tombstoneSuffix
			err = l.tree.Commit([]disk.Change{{Target: target, Data: []byte(digest.String() + "\n")}}, nil)
			done = c.Name + " buried"
		}
		if err != nil {
			return "", failure(err)
		}
	}
	return done, nil
}
