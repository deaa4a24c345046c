// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// keep says how to use what runs, and waits for Ctrl-C.
func keep(ctx context.Context, t *transcript, s stage) error {
	servers, err := controlplane.Build(ctx, io.Discard)
	if err != nil {
		return err
	}
	ca := filepath.Join(s.plane().Dir(), "new-ca.crt")
	if err := os.WriteFile(ca, testpki.NewCA("your-own-ca"), 0o644); err != nil {
		return err
	}
	t.chapter("Everything is left running until Ctrl-C")
	t.say(`kubectl as the cluster's administrator:

    export KUBECONFIG=%s/admin.kubeconfig PATH=%s:$PATH
    kubectl get controllerconfigs.node-cert-agent.io -o yaml

Another CA for the kubelet, by a patch of the ControllerConfig:

    kubectl patch controllerconfigs.node-cert-agent.io machine-config-controller --type merge \
      -p '{"spec":{"kubeAPIServerServingCAData":"'$(base64 -w0 %s)'"}}'

%s

Ctrl-C stops and removes everything.`, s.plane().Dir(), servers.Dir, ca, s.visit())
	<-ctx.Done()
	return nil
}
