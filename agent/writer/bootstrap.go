// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/bootstrap"
	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// The directory of the bootstrap credentials, which only we can read, and the names in it.
const (
	bootstrapDir    = "/etc/node-cert-agent/bootstrap.d"
	bootstrapSuffix = ".kubeconfig"
	usedSuffix      = ".consumed"
)

// The kubelet's own client certificate and key, in one file: what the link in its directory leads to
// (k8s.io/client-go/util/certificate, certificate_store.go).
const kubeletPair = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// Consume says what happens to a bootstrap credential that has served.
type Consume string

// The ways to take a credential out of use. A mark is a file beside it with its digest: the
// credential stays where something else wants it to be, and is not handed out again.
const (
	Delete   Consume = "delete"
	MarkUsed Consume = "mark-used"
	Keep     Consume = "keep"
)

// WithCredentials is l with another way to consume credentials than Keep. With kubelet it hands out the kubelet's
// client certificate and key, too, as the last credential: no kubeconfig but the two in PEM, which cannot be consumed.
func (l *Local) WithCredentials(c Consume, kubelet bool) *Local {
	other := *l
	other.consume, other.kubelet = c, kubelet
	return &other
}

// Bootstrap gives the bootstrap credentials by file name, without those that are consumed.
func (l *Local) Bootstrap(ctx context.Context) ([]bootstrap.Credential, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	files, err := l.tree.SecretFiles(bootstrapDir, bootstrapSuffix)
	if err != nil {
		return nil, failure(err)
	}
	used, err := l.tree.SecretFiles(bootstrapDir, usedSuffix)
	if err != nil {
		return nil, failure(err)
	}
	consumed := make(map[string]string, len(used))
	for _, t := range used {
		consumed[t.Name] = strings.TrimSpace(string(t.Data))
	}
	var out []bootstrap.Credential
	for _, f := range files {
		c := bootstrap.Credential{ID: bootstrap.ID{Name: f.Name}, Refused: f.Refused, Content: secret.New(f.Data)}
		if f.Refused == "" {
			c.Digest = plan.DigestOf(f.Data)
		}
		if digest := consumed[f.Name+usedSuffix]; digest == "" || digest != c.Digest.String() {
			out = append(out, c)
		}
	}
	if l.kubelet {
		out = append(out, l.kubeletCredential()...)
	}
	for _, c := range out {
		if c.Refused == "" {
			l.records.print(credentialLine("hands out", c))
		}
	}
	return out, nil
}

// kubeletCredential is nothing on a host without a kubelet.
func (l *Local) kubeletCredential() (one []bootstrap.Credential) {
	query := disk.Query{Target: disk.Target{Path: kubeletPair, FollowLink: true}}
	for f := range l.tree.Observe([]disk.Query{query}) {
		switch {
		case f.Kind == plan.Regular && f.UID == os.Geteuid() && f.Mode&0o077 == 0:
			id := bootstrap.ID{Name: bootstrap.Kubelet, Digest: f.Digest}
			one = append(one, bootstrap.Credential{ID: id, Content: secret.New(f.Data)})
		case f.Kind != plan.Absent:
			one = append(one, bootstrap.Credential{ID: bootstrap.ID{Name: bootstrap.Kubelet},
				Refused: "its client certificate is not a private file of root's: " + f.Reason})
		}
	}
	return one
}

// Consume takes the credential with this digest out of use, and says what was done; nothing if there
// is no such credential, or if credentials are kept.
func (l *Local) Consume(ctx context.Context, digest plan.Digest) (done string, err error) {
	all, err := l.recordedBy(nil).Bootstrap(ctx) // nothing is handed out
	if err != nil {
		return "", err
	}
	for _, c := range all {
		if c.Refused != "" || c.Digest != digest || c.Name == bootstrap.Kubelet {
			continue
		}
		if l.consume != Keep {
			l.records.print(fmt.Sprintf("%s how=%q", credentialLine("consumes", c), l.consume))
		}
		target := disk.Target{Path: path.Join(bootstrapDir, c.Name), Mode: 0o600, UID: -1, GID: -1}
		switch l.consume {
		case Delete:
			err = l.tree.Commit(nil, []disk.Removal{{Target: target, Digest: digest}})
			done = c.Name + " deleted"
		case MarkUsed:
			target.Path += usedSuffix
			err = l.tree.Commit([]disk.Change{{Target: target, Data: []byte(digest.String() + "\n")}}, nil)
			done = c.Name + " marked used"
		}
		if err != nil {
			return "", l.stopped(err)
		}
	}
	return done, nil
}
