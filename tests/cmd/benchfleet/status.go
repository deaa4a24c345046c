// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/figures"
)

const looks = 5

// status is what "kubectl node-certs status" takes, once the nodes have reported.
func status(ctx context.Context, e *env) error {
	var took figures.Samples
	var peaks []float64
	for range looks {
		t, peak, err := e.status(ctx)
		if err != nil {
			return err
		}
		took, peaks = append(took, t), append(peaks, peak)
	}
	e.table.Judge(fmt.Sprintf("kubectl node-certs status, slowest of %d", looks), took.Seconds(1), 2, "s")
	e.table.Note("  median", "%.2f s", took.Seconds(.5))
	e.table.Judge("  peak, resident", slices.Max(peaks), 100, "MiB")
	return nil
}

// status runs it once. The peak is the last one that was seen: what a child has had at most is no less in
// getrusage(2) than what its parent had.
func (e *env) status(ctx context.Context) (took time.Duration, peak float64, err error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(e.bin, "kubectl-node_certs"), "status", "--kubeconfig",
		filepath.Join(e.plane.Dir(), "admin.kubeconfig"))
	cmd.Stdout, cmd.Stderr = &out, &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for tick := time.NewTicker(2 * time.Millisecond); ; {
		select {
		case err := <-ended:
			took = time.Since(began)
			tick.Stop()
			if want := fmt.Sprintf("\n%d nodes: ", e.n); err == nil && !strings.Contains(out.String(), want) {
				err = fmt.Errorf("it does not say%s", want)
			}
			if err != nil {
				err = fmt.Errorf("kubectl node-certs status: %w\n%s", err, said.String())
			}
			return took, peak, err
		case <-tick.C:
			_, now := memory(cmd.Process.Pid)
			peak = max(peak, now)
		}
	}
}
