// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// kubelet is the time from the rename of the kubelet's client CA file to its first answer to a client
// of the CA that came with it. The baseline is mv by hand. Agent and hand replace the same file of the
// same kubelet in turn; the agent is stopped meanwhile, or it would heal what the hand does.
func kubelet(ctx context.Context, e *env, p plan, t *figures.Table) (err error) {
	if _, err := e.Host.Run(ctx, "systemctl", "start", cluster.Kubelet); err != nil {
		return err
	}
	defer func() {
		if _, failure := e.Host.Run(ctx, "systemctl", "stop", cluster.Kubelet); err == nil {
			err = failure
		}
	}()
	r := &rotation{env: e, file: filepath.Join(e.arms[1].root, controllerconfig.KubeletCA)}
	times := map[string]figures.Samples{}
	for range p.kubeletRounds {
		for _, i := range rand.Perm(2) {
			name, replace := "baseline", r.byHand
			if i == 1 {
				name, replace = "agent", r.byAgent
			}
			took, err := r.once(ctx, replace)
			if err != nil {
				return fmt.Errorf("the %s: %w", name, err)
			}
			times[name] = append(times[name], took)
		}
	}
	t.Compare("file renamed -> live in the kubelet", times, map[string]float64{"p50": 1.3, "p95": 1.3})
	return nil
}

// rotation adds a CA to the kubelet's bundle, again and again.
type rotation struct {
	*env
	file string // on the outer machine
	last []byte // that the object asks for
}

// once has the bundle replaced and waits for the kubelet to accept the new CA.
func (r *rotation) once(ctx context.Context, replace func(context.Context, []byte) error) (time.Duration, error) {
	authority := testpki.New("rotation", testpki.ECDSA)
	client := authority.Client("bench")
	bundle := append(slices.Clone(r.arms[1].content.Spec.KubeAPIServerServingCAData), authority.PEM()...)
	pause(ctx, shortPause+rand.N(shortPause/4))
	r.observer.drain()
	if err := replace(ctx, bundle); err != nil {
		return 0, err
	}
	_, renamed, err := r.await(ctx, map[string][]byte{r.file: bundle})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait.Limit)
	defer cancel()
	for {
		switch code, err := r.Ask(ctx, cluster.KubeletAddress, "/healthz", client); {
		case code == http.StatusOK:
			return time.Since(renamed), r.restore(ctx)
		case ctx.Err() != nil:
			return 0, fmt.Errorf("the kubelet answers %d, %v", code, err)
		}
	}
}

func (r *rotation) byAgent(ctx context.Context, bundle []byte) error {
	_, err := r.arms[1].store.Patch(ctx, controllerconfig.Spec{KubeAPIServerServingCAData: bundle})
	r.last = bundle
	return err
}

func (r *rotation) byHand(ctx context.Context, bundle []byte) error {
	if err := r.signal(ctx, "STOP"); err != nil {
		return err
	}
	return r.move(bundle)
}

// restore gives the agent back what it wants to see, and lets it go on.
func (r *rotation) restore(ctx context.Context) error {
	if now, err := os.ReadFile(r.file); err != nil || slices.Equal(now, r.last) {
		return err
	}
	if r.last == nil {
		r.last = r.arms[1].content.Spec.KubeAPIServerServingCAData
	}
	if err := r.move(r.last); err != nil {
		return err
	}
	return r.signal(ctx, "CONT")
}

func (r *rotation) signal(ctx context.Context, name string) error {
	_, err := r.Host.Run(ctx, "systemctl", "kill", "--kill-whom=main", "--signal="+name, agentUnit)
	return err
}

// move is mv.
func (r *rotation) move(bundle []byte) error {
	aside := r.file + ".hand"
	if err := os.WriteFile(aside, bundle, 0o644); err != nil {
		return err
	}
	return os.Rename(aside, r.file)
}
