// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real Kubernetes control plane on loopback for tests, the demo and the
// benchmarks: etcd, kube-apiserver and kube-controller-manager, each a process of its own, with TLS
// everywhere, RBAC, bootstrap tokens and certificate signing.
//
// It owns the processes it started, their ports and one state folder for each plane, so that
// several planes run side by side, and it leaves nothing behind: Stop ends the processes and
// removes the folder, and the kernel ends them if the caller dies (a folder then stays in $TMPDIR).
// Nothing is started or ended by name.
//
// There is no kubelet and no scheduler, hence no node and no running pod; admission is what
// upstream enables by default; the API has no more replicas than one. It is no measure of how an
// OpenShift API server behaves under load.
//
// The servers come from the module in the folder servers, which is compiled once: see Build. Linux
// only.
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// startLimit is how long a server may take until it is ready, unless options say: ten times what it takes here.
const startLimit = 90 * time.Second

// Options are how a plane differs from the usual one, which the zero value asks for.
type Options struct {
	// Dir is the state folder, made by Start or empty; the default is a new folder in $TMPDIR.
	Dir string
	// Keep leaves the state folder, with its logs, behind after Stop.
	Keep bool
	// Keys is the kind of every key that the plane makes: ECDSA, which is fast, or the RSA of
	// kubeadm and OpenShift.
	Keys testpki.Algorithm
	// Anonymous lets requests without credentials in as system:anonymous, which discovery through
	// the ConfigMap cluster-info needs.
	Anonymous bool
	// APIServerOff leaves it to StartAPIServer to bring the API server up, and with it the
	// controllers.
	APIServerOff bool
	// APIServerArgs are further arguments of kube-apiserver, such as --goaway-chance=0.01; they
	// win over ours.
	APIServerArgs []string
	// ControllerManagerArgs are the same for kube-controller-manager, EtcdArgs for etcd.
	ControllerManagerArgs []string
	EtcdArgs              []string
	// StartLimit is how long a server may take until it is ready, where thousands wait for it; the default is 90 s.
	StartLimit time.Duration
	// Progress is told about a build, if one is needed; nil means that nobody listens.
	Progress io.Writer
}

// Plane is one running control plane. Its methods may be called from several goroutines.
type Plane struct {
	options  Options
	binaries Binaries
	dir      string
	ports    ports
	ca       *testpki.Authority
	admin    *http.Client

	mu                     sync.Mutex // guards what follows
	etcd, api, controllers *server
	stopped                bool
}

// Start builds what is missing (see Build), starts a plane and waits until it is ready, which takes
// about three seconds. ctx bounds only the start. A plane that does not come up is taken down
// again, and the error quotes the log of the server at fault.
func Start(ctx context.Context, o Options) (*Plane, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	binaries, err := Build(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		p, err := start(ctx, binaries, o)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, errPortTaken) || attempt == 3 {
			return nil, fmt.Errorf("starting a control plane: %v", err)
		}
	}
}

func start(ctx context.Context, b Binaries, o Options) (_ *Plane, err error) {
	p := &Plane{options: o, binaries: b, ca: testpki.New("kubernetes", o.Keys)}
	if p.dir, err = stateDir(o.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = p.Stop() // the first error says more
		}
	}()
	if p.ports, err = choosePorts(); err != nil {
		return nil, err
	}
	etcdCA := testpki.New("etcd-ca", o.Keys)
	if err := p.writePKI(etcdCA); err != nil {
		return nil, err
	}
	p.admin = p.Client("admin", adminGroup)
	if err := p.writeKubeconfigs(); err != nil {
		return nil, err
	}
	store, err := p.run(&p.etcd, etcd, p.etcdFlags())
	if err != nil {
		return nil, err
	}
	var api *server
	if !o.APIServerOff { // it has enough to do until etcd is there
		if api, err = p.run(&p.api, apiServer, p.apiServerFlags()); err != nil {
			return nil, err
		}
	}
	client := newClient(etcdCA, etcdCA.Client("controlplane"))
	defer client.CloseIdleConnections()
	ctx, cancel := p.limit(ctx)
	defer cancel()
	if err := store.ready(ctx, client, url(p.ports.etcdClient)+"/readyz"); err != nil || o.APIServerOff {
		return p, err
	}
	return p, p.apiServerReady(ctx, api)
}

// stateDir makes the state folder or makes sure that the given one is empty: it will be removed.
func stateDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "controlplane-")
	}
	dir, err := filepath.Abs(dir) // the servers run in it
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("the state folder %s is not empty", dir)
	}
	return dir, nil
}

// URL is where the API server listens, or will when it is started.
func (p *Plane) URL() string { return url(p.ports.api) }

// EtcdURL is where etcd listens for clients.
func (p *Plane) EtcdURL() string { return url(p.ports.etcdClient) }

// Dir is the state folder. It holds a log for each server and admin.kubeconfig.
func (p *Plane) Dir() string { return p.dir }

// StartAPIServer starts the API server, on the port and the state it always has, unless it runs, and
// waits until its /readyz answers; the first time it starts the controllers too and waits for them.
func (p *Plane) StartAPIServer(ctx context.Context) error {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	api, err := p.run(&p.api, apiServer, p.apiServerFlags())
	if err != nil {
		return err
	}
	return p.apiServerReady(ctx, api)
}

func (p *Plane) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(p.options.StartLimit, startLimit))
}

func (p *Plane) apiServerReady(ctx context.Context, api *server) error {
	if err := api.ready(ctx, p.admin, p.URL()+"/readyz"); err != nil {
		return err
	}
	controllers, err := p.run(&p.controllers, controllerManager, p.controllerManagerFlags())
	if err != nil {
		return err
	}
	return controllers.ready(ctx, p.admin, url(p.ports.controllers)+"/healthz")
}

// StopAPIServer sends the signal to the API server and waits for its end. After SIGTERM that takes
// up to a minute while anybody watches, the controllers included, unless APIServerArgs hold
// --shutdown-watch-termination-grace-period=1s. Nothing else stops. It is an error if the API server
// does not run.
func (p *Plane) StopAPIServer(ctx context.Context, sig syscall.Signal) error {
	p.mu.Lock()
	api := p.api
	p.mu.Unlock()
	if !api.running() {
		return fmt.Errorf("%s does not run", apiServer)
	}
	if err := api.stop(ctx, sig); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.api == api {
		p.api = nil
	}
	return nil
}

// FreezeAPIServer makes the API server fall silent with its connections open, and returns when it
// has. ThawAPIServer, StopAPIServer with SIGKILL and Stop end that.
func (p *Plane) FreezeAPIServer() error {
	return p.onAPIServer((*server).freeze)
}

// ThawAPIServer lets a frozen API server go on.
func (p *Plane) ThawAPIServer() error {
	return p.onAPIServer(func(s *server) error { return s.process.Signal(syscall.SIGCONT) })
}

func (p *Plane) onAPIServer(do func(*server) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.api.running() {
		return fmt.Errorf("%s does not run", apiServer)
	}
	return do(p.api)
}

// Stop kills what runs and removes the state folder, unless Options.Keep is set. Only the first call
// does anything. It reports a server that had ended before anybody stopped it.
func (p *Plane) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	p.stopped = true
	var errs []error
	for _, s := range []*server{p.controllers, p.api, p.etcd} {
		if s == nil {
			continue
		}
		if !s.running() {
			errs = append(errs, fmt.Errorf("%s ended by itself (%v); its log ends with\n%s", s.name, s.ended, s.tail()))
		} else if err := s.stop(context.Background(), syscall.SIGKILL); err != nil {
			errs = append(errs, err)
		}
	}
	if p.admin != nil {
		p.admin.CloseIdleConnections()
	}
	if !p.options.Keep {
		errs = append(errs, os.RemoveAll(p.dir))
	}
	return errors.Join(errs...)
}

// run starts the server that field holds, unless it runs.
func (p *Plane) run(field **server, name string, flags []string) (s *server, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, errors.New("the control plane has been stopped")
	}
	if (*field).running() {
		return *field, nil
	}
	if s, err = launch(p.binaries, name, p.dir, flags); err != nil {
		return nil, err
	}
	*field = s
	return s, nil
}
