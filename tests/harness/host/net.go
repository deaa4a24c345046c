// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// newNetns makes a network namespace with nothing but a loopback interface. It belongs to us rather
// than to a boot, so that ports exist before the host and outlive its reboots.
func newNetns() (f *os.File, err error) {
	err = onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		if f, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		return loopbackUp()
	})
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return f, err
}

// loopbackUp follows netdevice(7).
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return os.NewSyscallError("ioctl", unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req))
}

// onOwnThread runs do on an operating system thread that is thrown away after it, with whatever
// namespaces do has entered: the lock is never undone.
func onOwnThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- do()
	}()
	return <-done
}

// Own gives the host's loopback interface one more IPv4 address, which then is one of the host itself.
func (h *Host) Own(ip [4]byte) error {
	return h.inNetns(func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer unix.Close(s)
		req, err := unix.NewIfreq("lo:1")
		if err != nil {
			return err
		}
		if err := req.SetInet4Addr(ip[:]); err != nil {
			return err
		}
		return os.NewSyscallError("ioctl", unix.IoctlIfreq(s, unix.SIOCSIFADDR, req))
	})
}

func (h *Host) inNetns(do func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(h.netns.Fd()), unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("setns", err)
		}
		return do()
	})
}

// Dial connects to a TCP address of the host, such as 127.0.0.1:9100; names are not resolved.
func (h *Host) Dial(ctx context.Context, addr string) (conn net.Conn, err error) {
	ap, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	err = h.inNetns(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", ap.String())
		return err
	})
	return conn, err
}

// Port is an address of the host that leads to an address of the outer machine.
type Port struct {
	l       net.Listener
	outside string
	closing context.Context
	close   context.CancelFunc
	serving sync.WaitGroup

	mu   sync.Mutex
	flow chan struct{} // closed while bytes may pass
}

// Listen opens inside, a TCP address such as 127.0.0.1:6443, in the host's own network and pipes
// every connection to outside. The port stays over Kill and Reboot until it is closed or the host
// is stopped. Where outside refuses, the connection is reset.
func (h *Host) Listen(ctx context.Context, inside, outside string) (*Port, error) {
	p := &Port{outside: outside, flow: make(chan struct{})}
	close(p.flow)
	err := h.inNetns(func() (err error) {
		p.l, err = new(net.ListenConfig).Listen(ctx, "tcp", inside)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on host %s: %w", h.opts.Name, err)
	}
	p.closing, p.close = context.WithCancel(context.Background())
	h.mu.Lock()
	h.ports[p] = struct{}{}
	h.mu.Unlock()
	p.serving.Go(p.serve)
	return p, nil
}

// Close ends the listener and every connection: what dials now is refused.
func (p *Port) Close() {
	p.close()
	p.l.Close()
	p.serving.Wait()
}

// Pause lets no byte pass any more in either direction, while connections stay open and new ones
// are accepted: the silence of a cut cable or a stuck server.
func (p *Port) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flow:
		p.flow = make(chan struct{})
	default:
	}
}

// Resume ends a Pause; nothing that was sent meanwhile is lost.
func (p *Port) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flow:
	default:
		close(p.flow)
	}
}

// pass waits until bytes may pass, and reports false when the port closes.
func (p *Port) pass() bool {
	p.mu.Lock()
	flow := p.flow
	p.mu.Unlock()
	select {
	case <-flow:
		return p.closing.Err() == nil
	case <-p.closing.Done():
		return false
	}
}

func (p *Port) serve() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() { p.pipe(in.(*net.TCPConn)) })
	}
}

func (p *Port) pipe(in *net.TCPConn) {
	defer in.Close()
	if !p.pass() {
		return
	}
	c, err := new(net.Dialer).DialContext(p.closing, "tcp", p.outside)
	if err != nil {
		_ = in.SetLinger(0) // Close then resets, the nearest thing to a refusal
		return
	}
	out := c.(*net.TCPConn)
	defer out.Close()
	stop := context.AfterFunc(p.closing, func() { in.Close(); out.Close() })
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{in, out}, {out, in}} {
		both.Go(func() {
			if err := p.copy(way[1], way[0]); err != nil {
				in.Close()
				out.Close()
			}
		})
	}
	both.Wait()
}

// copy pipes one direction and passes the end of the stream on. Any other end is an error.
func (p *Port) copy(to, from *net.TCPConn) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if !p.pass() {
			return net.ErrClosed
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return to.CloseWrite()
		}
		if err != nil {
			return err
		}
	}
}
