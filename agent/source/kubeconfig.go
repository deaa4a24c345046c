// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/desired"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
)

// kubeconfigRetry is how often a missing kubeconfig is looked for when no event announced it.
const kubeconfigRetry = 30 * time.Second

// FollowKubeconfig follows the ControllerConfig until ctx ends, with the identity that a kubeconfig gives which
// something else maintains. It starts over whenever the file's content is another one; changed announces that it may
// be.
func (s *Source) FollowKubeconfig(ctx context.Context, file string, changed <-chan struct{}) {
	for ctx.Err() == nil {
		read := digestOf(file)
		id, err := apiserver.FromKubeconfig(file)
		if err != nil {
			s.offer(desired.Reading{State: NoIdentity, Reason: printable.Text(err.Error())})
			select {
			case <-ctx.Done():
			case <-changed:
			case <-time.After(kubeconfigRetry):
			}
			continue
		}
		s.follow(ctx, id, func() bool { return digestOf(file) != read }, changed)
		if ctx.Err() == nil {
			s.log.Info("the kubeconfig changed", zap.String("file", file))
		}
	}
}

// digestOf tells one content of a file from another; zero is a file that cannot be read.
func digestOf(file string) plan.Digest {
	b, err := os.ReadFile(file)
	if err != nil {
		return plan.Digest{}
	}
	return plan.DigestOf(b)
}

// follow passes readings on as id until ctx ends, or until a change was announced and id is stale.
func (s *Source) follow(ctx context.Context, id *apiserver.Conn, stale func() bool, changed <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.trust.use(id.Prove, nil)
	w := s.watches(watch.Options{Client: id.HTTPClient(), Server: id.Server()})
	go w.run(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-w.object:
			s.offer(s.update(&s.object, r))
		case r := <-w.configMap:
			s.offer(s.update(&s.configMap, r))
		case <-changed:
			if stale() {
				return
			}
		}
	}
}

// Once gives what is asked for as soon as the ControllerConfig was read as id, and the ConfigMap or why that cannot be
// read. The error says how far it has come when ctx ends first.
func (s *Source) Once(ctx context.Context, id *apiserver.Conn) (plan.Desired, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.follow(ctx, id, nil, nil)
	var last desired.Reading
	var wanted *plan.Desired
	for {
		select {
		case last = <-s.readings:
			if last.Desired != nil {
				wanted = last.Desired
			}
			if wanted != nil && last.State == report.Following && s.settled(last.ConfigMap) {
				return *wanted, nil
			}
		case <-ctx.Done():
			return plan.Desired{}, fmt.Errorf("the ControllerConfig was not read in time: %s: %s", last.State, last.Reason)
		}
	}
}

// settled tells whether there is nothing more to hear of the ConfigMap for now.
func (s *Source) settled(c *report.Source) bool {
	return !s.followsConfigMap() || c != nil && c.State != report.SourceState(watch.Connecting)
}
