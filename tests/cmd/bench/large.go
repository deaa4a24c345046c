// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

const (
	largeRegistries = 500
	largeRounds     = 5
	// The two halves after 60 changes of a usual object, and what a large one may take above that.
	usualAgent, usualWriter, largeAbove = 14.5, 12.6, 10.0
)

// largeStore lets etcd take an object of two megabytes. By default it takes one and a half, so that no
// cluster has as large a one.
const largeStore = "--max-request-bytes=4194304"

// large is an object at the limits: a bundle of 1 MiB and 500 registries, first on a host that has none
// of them, then with all of them replaced. Both halves start before it, so that their peaks are due to
// it; etcd has to be told to take it.
func large(ctx context.Context, e *env, _ plan, t *figures.Table) error {
	if _, err := e.Host.Run(ctx, "systemctl", "restart", writerUnit, agentUnit, baselineUnit); err != nil {
		return err
	}
	pause(ctx, settling)
	for _, a := range e.arms {
		grow(a.content)
		took, err := e.firstLarge(ctx, a)
		if err != nil {
			return fmt.Errorf("the %s: %w", a.name, err)
		}
		e.judgeLarge(t, a, "none of them there", figures.Samples{took})
	}
	if err := e.look(); err != nil {
		return err
	}
	t.Note("size of the large object", "%d bytes of JSON, of which the bundle %d",
		len(controllerconfig.Object(controllerconfig.OpenShift, e.arms[1].content.Spec)),
		len(e.arms[1].content.Spec.AdditionalTrustBundle))
	s, err := e.alternate(ctx, largeRounds, settling, (*controllerconfig.Content).RotateAll)
	if err != nil {
		return err
	}
	for _, a := range e.arms {
		e.judgeLarge(t, a, "all replaced", s.last[a.name])
	}
	pause(ctx, settling)
	use, err := e.uses(ctx)
	if err != nil {
		return err
	}
	t.Judge("  peak of the agent, resident", use[agentUnit].peak, usualAgent+largeAbove, "MiB")
	t.Judge("  peak of the writer, resident", use[writerUnit].peak, usualWriter+largeAbove, "MiB")
	t.Note("  afterwards: agent, writer, resident", "%.2f, %.2f MiB", use[agentUnit].resident, use[writerUnit].resident)
	t.Note("  peak of the baseline, resident", "%.2f MiB", use[baselineUnit].peak)
	return nil
}

// judgeLarge adds a line for an arm; the agent's slowest is judged.
func (e *env) judgeLarge(t *figures.Table, a *arm, how string, took figures.Samples) {
	figure := fmt.Sprintf("1 MiB and %d registries, %s: %s", largeRegistries, how, a.name)
	if a.name != "agent" {
		t.Note(figure, "%v", took)
		return
	}
	t.Judge(figure+", slowest of "+fmt.Sprint(len(took)), took.Milliseconds(1), 1000, "ms")
}

// firstLarge is the time from an accepted update to the last file. No directory of a registry is there
// to be watched, so it looks for the file that comes last, every millisecond.
func (e *env) firstLarge(ctx context.Context, a *arm) (took time.Duration, err error) {
	want := a.want(a.content.Spec)
	list := a.content.Spec.ImageRegistryBundleData
	end := filepath.Join(a.root, controllerconfig.CertsD, strings.ReplaceAll(list[len(list)-1].File, "..", ":"), "ca.crt")
	if _, err := a.store.Patch(ctx, a.content.Spec); err != nil {
		return 0, err
	}
	accepted := time.Now()
	ctx, cancel := context.WithTimeout(ctx, wait.Limit)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := os.Lstat(end); err == nil {
			return time.Since(accepted), wait.Until(ctx, "the other files", func() bool { return hold(want) })
		}
		pause(ctx, time.Millisecond)
	}
	return 0, fmt.Errorf("%s did not come: %w", end, ctx.Err())
}

// grow makes the object large: a bundle of up to 1 MiB, and registries to the number of largeRegistries,
// those that are new with one CA each.
func grow(c *controllerconfig.Content) {
	c.Spec.AdditionalTrustBundle = nil
	for range pki.MaxCerts {
		if ca := heavyCA(); len(c.Spec.AdditionalTrustBundle)+len(ca) <= pki.MaxBytes {
			c.Spec.AdditionalTrustBundle = append(c.Spec.AdditionalTrustBundle, ca...)
		}
	}
	c.Signer = testpki.New("rotated", testpki.ECDSA)
	list := slices.Clone(c.Spec.ImageRegistryBundleData)
	for i := len(list); i < largeRegistries; i++ {
		// The names come after those of the others in any order.
		list = append(list, controllerconfig.Registry{File: fmt.Sprintf("s%03d.example.internal..5000", i),
			Data: c.Fresh()})
	}
	c.Spec.ImageRegistryBundleData = list
}

// heavyCA has 2 KB, as one with a key of 4096 bits and policies: as many as a bundle may hold are a MiB.
func heavyCA() []byte {
	return testpki.NewFrom(x509.Certificate{Subject: pkix.Name{CommonName: "heavy"},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 32473, 1},
			Value: make([]byte, 1130)}}}, testpki.ECDSA).PEM()
}
