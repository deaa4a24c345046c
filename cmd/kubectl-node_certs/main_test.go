// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

var fingerprint = strings.Repeat("0a", 32)

func TestMistakesOfTheCommandLineAreUsageErrors(t *testing.T) {
	for want, args := range map[string][]string{
		"unexpected argument":                   {"status", "x"},
		"unknown flag":                          {"wait", "--no-such-flag"},
		"has no field \"rootCA\"":               {"wait", "--field=rootCA", "--sha256", fingerprint},
		"no field \"internalRegistryPullSecret": {"wait", "--field=internalRegistryPullSecret", "--sha256", fingerprint},
		"--registry belongs to the fields":      {"wait", "--field=rootCAData", "--registry=r", "--sha256", fingerprint},
		"lists of registries, which need it":    {"wait", "--field=imageRegistryBundleData", "--sha256", fingerprint},
		"--field, --registry: ":                 {"wait", "--field=imageRegistryBundleData", "--registry=a/b", "--sha256", fingerprint},
		"--sha256 is missing":                   {"wait", "--field=rootCAData"},
		"is no SHA-256 in hexadecimal":          {"wait", "--field=rootCAData", "--sha256=0a0b"},
		"is no time to wait":                    {"wait", "--field=rootCAData", "--sha256", fingerprint, "--timeout=0s"},
		"name one node;":                        {"why"},
		"is neither json nor yaml":              {"certs", "-o", "table"},
		"is before now":                         {"certs", "--expires-within=-1h"},
		"name one request; 'kubectl get csr'":   {"approve"},
		"--ignore-nodes: ":                      {"wait", "--field=rootCAData", "--sha256", fingerprint, "--ignore-nodes=a b"},
	} {
		var out, complaint bytes.Buffer
		if code := run(t.Context(), args, &out, &complaint); code != process.Usage || !strings.Contains(complaint.String(), want) {
			t.Errorf("%v: code %d, %s", args, code, complaint.String())
		}
	}
}

func TestFingerprintsAreReadAsOpenSSLPrintsThem(t *testing.T) {
	colons := strings.TrimSuffix(strings.Repeat("0A:", 32), ":")
	q, err := waiting{field: "rootCAData", sha256: []string{"sha256:" + fingerprint, colons}, timeout: time.Second}.question()
	if err != nil || len(q.Certificates) != 2 || q.Certificates[0] != q.Certificates[1] {
		t.Errorf("%v, %v", q.Certificates, err)
	}
}

func TestAMissingKubeconfigFails(t *testing.T) {
	var out, complaint bytes.Buffer
	if code := run(t.Context(), []string{"status", "--kubeconfig", t.TempDir() + "/none"}, &out, &complaint); code !=
		process.Failed || !strings.Contains(complaint.String(), "none") {
		t.Errorf("code %d, %s", code, complaint.String())
	}
}
