// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"
)

// maxFile, in bytes, bounds a kubeconfig and each file that it names: far beyond what the certificates of a
// cluster need.
const maxFile = 1 << 20

var errNotRegular = errors.New("not a regular file")

// readFile reads a regular file. It is looked at before it is opened, because to open a device may set it to
// work, and a pipe is not waited for if it comes in between. The error does not name the path.
func readFile(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, cause(err)
	} else if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, cause(err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxFile)
	}
	return data, nil
}

// cause is the error without the path, which the caller names.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// refreshEvery is how often a CA file is looked at, at most, by a request.
const refreshEvery = time.Second

// refreshing verifies connections with the CA file as it is now. client-go would do the same, but reads
// whatever stands at the path, and all of it.
type refreshing struct {
	mu     sync.Mutex
	config Config
	rt     http.RoundTripper
	looked time.Time
}

// newRefreshing connects to nothing yet.
func newRefreshing(c Config) (*refreshing, error) {
	rt, err := transport.New(&c.transport)
	return &refreshing{config: c, rt: rt}, err
}

// RoundTrip implements http.RoundTripper.
func (r *refreshing) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.now().RoundTrip(req)
}

// CloseIdleConnections is for http.Client.
func (r *refreshing) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(r.now()) }

func (r *refreshing) now() http.RoundTripper {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) < refreshEvery {
		return r.rt
	}
	r.looked = time.Now()
	ca, changed := r.config.replaced()
	if !changed {
		return r.rt
	}
	next := r.config
	next.transport.TLS.CAData = ca
	rt, err := transport.New(&next.transport)
	if err != nil {
		return r.rt
	}
	utilnet.CloseIdleConnectionsFor(r.rt)
	r.config, r.rt = next, rt
	return rt
}
