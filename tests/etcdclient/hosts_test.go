// SPDX-License-Identifier: Apache-2.0

package etcdclient

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/lock"
)

// What a process is told that renews for ever in place of the tests.
const (
	envHost  = "RENEWING_HOST"
	envEtcd  = "RENEWING_ETCD"
	envPlane = "RENEWING_PLANE" // the state folder
	envDir   = "RENEWING_DIR"
)

func TestMain(m *testing.M) {
	if os.Getenv(envHost) == "" {
		os.Exit(m.Run())
	}
	h := host{name: os.Getenv(envHost), dir: os.Getenv(envDir)}
	config, err := credentials(os.Getenv(envPlane))
	if err == nil {
		h.client, err = etcd.New(os.Getenv(envEtcd), config, 300*time.Millisecond)
	}
	if err != nil {
		h.fail(err.Error())
	}
	for parent := os.Getppid(); os.Getppid() == parent; {
		if err := h.turn(); err != nil {
			<-time.After(5 * time.Millisecond)
		}
	}
}

// host is one that has a pair to renew at all times.
type host struct {
	name, dir string
	client    *etcd.Client
}

// journal is a link to the name of the host that has a changed pair. There can be only one, which is the point.
func (h host) journal() string { return filepath.Join(h.dir, "journal") }

func (h host) fail(what string) {
	_ = os.WriteFile(filepath.Join(h.dir, "failed"), []byte(h.name+": "+what), 0o600)
	os.Exit(1)
}

func (h host) turn() error {
	ctx := context.Background()
	l := &lock.Lock{Store: h.client, Host: h.name, Now: time.Now, TTL: time.Second}
	n, err := l.Resume(ctx)
	if err != nil {
		return err
	}
	if changed, _ := os.Readlink(h.journal()); changed == h.name {
		if n == nil {
			h.fail("a pair is changed, and the lock is not held")
		}
		h.prove()
	}
	if n == nil {
		if err := l.Claim(ctx); err != nil {
			return err
		}
		<-time.After(5 * time.Millisecond) // the gate
	}
	if err := l.Begin(ctx, "etcd/server", "", ""); err != nil {
		return err
	}
	if err := os.Symlink(h.name, h.journal()); err != nil {
		other, _ := os.Readlink(h.journal())
		h.fail(fmt.Sprintf("changes a pair beside %s: %v", other, err))
	}
	h.prove()
	return l.Done(ctx)
}

// prove ends a change, and counts it.
func (h host) prove() {
	<-time.After(10 * time.Millisecond)
	f, err := os.OpenFile(filepath.Join(h.dir, h.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(".")
		_ = f.Close()
	}
	if err == nil {
		err = os.Remove(h.journal())
	}
	if err != nil {
		h.fail(err.Error())
	}
}
