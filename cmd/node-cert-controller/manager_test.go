// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	coordination "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// holder is an API server with one Lease, or an error.
type holder struct {
	client.Reader
	name string
	err  error
}

func (h *holder) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if key != (client.ObjectKey{Namespace: "ns", Name: "node-cert-controller"}) {
		return errors.New("another object")
	}
	o.(*coordination.Lease).Spec.HolderIdentity = &h.name
	return h.err
}

func TestAReplicaIsReadyOnceTheLeaderIsKnown(t *testing.T) {
	h := &holder{}
	check := leaderKnown(h, "ns")
	for _, step := range []struct {
		sentence, name string
		err            error
		ready          bool
	}{
		{"the API server is away", "", errors.New("away"), false},
		{"nobody leads", "", nil, false},
		{"another leads", "another", nil, true},
		{"the API server is away again", "", errors.New("away"), true},
	} {
		h.name, h.err = step.name, step.err
		if err := check(httptest.NewRequest("GET", "/readyz", nil)); (err == nil) != step.ready {
			t.Errorf("%s: %v", step.sentence, err)
		}
	}
}

func TestAnAddressThatIsTakenIsDoneWithout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if got := available(address, zap.NewNop()); got != "0" {
		t.Errorf("an address that is taken is %q", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := available(address, zap.NewNop()); got != address {
		t.Errorf("an address that is free is %q", got)
	}
	if got := available("", zap.NewNop()); got != "0" {
		t.Errorf("no address is %q", got)
	}
}

func TestADirectoryWithoutACertificateForTheMetricsFails(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	const text = "{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], " +
		"contexts: [{name: a, context: {cluster: a}}], current-context: a}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := settings{kubeconfig: kubeconfig, metrics: "127.0.0.1:0", metricsCerts: t.TempDir()}
	if err := work(t.Context(), s); err == nil ||
		!strings.Contains(err.Error(), "tls.crt") {
		t.Errorf("a certificate is made up: %v", err)
	}
}
