// SPDX-License-Identifier: Apache-2.0

package readers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// kubeletConfig has no container runtime, so that a kubelet ends where it would look for one. By then
// it has read its client CA bundle.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: %[1]s/ca.crt}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://%[1]s/no.sock
failCgroupV1: false
failSwapOn: false
`

// Kubelet starts a real kubelet with data as its clientCAFile, in dir, and gives the reason if it does
// not get past loading it. It takes a tenth of a second.
func Kubelet(ctx context.Context, program, dir string, data []byte) error {
	for name, text := range map[string][]byte{"ca.crt": data, "config.yaml": fmt.Appendf(nil, kubeletConfig, dir)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	said, err := exec.CommandContext(ctx, program, "--config", filepath.Join(dir, "config.yaml"),
		"--root-dir", filepath.Join(dir, "root"), "--cert-dir", filepath.Join(dir, "pki")).CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !bytes.Contains(said, []byte("validate CRI v1 runtime API for endpoint")) {
		lines := bytes.Split(bytes.TrimSpace(said), []byte("\n"))
		return fmt.Errorf("kubelet: %v: %.400s", err, lines[len(lines)-1])
	}
	return nil
}
