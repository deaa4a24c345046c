// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
)

const (
	kubeletCA = "/etc/kubernetes/kubelet-ca.crt"
	cloudCA   = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
)

// sync is what each version of the ControllerConfig leads to.
func sync(spec controllerconfig.Spec) error {
	// A map there, too: the order is chance.
	for path, data := range map[string][]byte{kubeletCA: spec.KubeAPIServerServingCAData,
		cloudCA: spec.CloudProviderCAData} {
		if !bytes.HasSuffix(data, []byte("\n")) {
			data = append(bytes.Clone(data), '\n')
		}
		mode := fs.FileMode(0o644)
		if info, err := os.Stat(path); err == nil {
			mode = info.Mode()
		}
		if err := write(path, data, mode); err != nil {
			return err
		}
	}
	lists := append(append([]controllerconfig.Registry{}, spec.ImageRegistryBundleData...),
		spec.ImageRegistryBundleUserData...)
	if err := clear(lists); err != nil {
		return err
	}
	for _, r := range lists {
		dir := filepath.Join(certsD, strings.ReplaceAll(r.File, "..", ":"))
		if err := write(filepath.Join(dir, "ca.crt"), r.Data, 0o644); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// clear removes every directory whose name is not an entry's. Names with a port never are: they are
// compared with "..".
func clear(lists []controllerconfig.Registry) error {
	entries, err := os.ReadDir(certsD)
	if err != nil {
		return err
	}
	for _, e := range entries {
		listed := false
		for _, r := range lists {
			listed = listed || r.File == e.Name()
		}
		if e.IsDir() && !listed {
			if err := os.RemoveAll(filepath.Join(certsD, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// write replaces a file by rename, whatever it held: mode first, then bytes, then fsync. The owner is
// whoever runs this.
func write(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	defer f.Close()
	for _, step := range []func() error{
		func() error { return f.Chmod(mode) },
		func() error { _, err := f.Write(data); return err },
		f.Sync,
		func() error { return os.Rename(f.Name(), path) },
	} {
		if err := step(); err != nil {
			_ = os.Remove(f.Name())
			return fmt.Errorf("writing %s: %v", path, err)
		}
	}
	return nil
}
