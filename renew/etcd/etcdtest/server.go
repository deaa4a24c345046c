// SPDX-License-Identifier: Apache-2.0

package etcdtest

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd/wire"
)

// Server is a member that listens on loopback. Set its fields before the first call; only Answer may change later.
type Server struct {
	// URL is its endpoint.
	URL string
	// TLS believes the server. What else a client shows is not judged.
	TLS *tls.Config
	// Store is what the server answers from.
	Store Store
	// Members, Status and Alarms are what it says of the cluster.
	Members []etcd.Member
	Status  etcd.Status
	Alarms  []etcd.Alarm

	answer atomic.Pointer[http.HandlerFunc]
}

// Start begins to listen; stop ends it, and every connection with it.
func Start() (s *Server, stop func()) {
	s = &Server{}
	h := httptest.NewUnstartedServer(s)
	h.EnableHTTP2 = true
	h.StartTLS()
	s.URL, s.TLS = h.URL, h.Client().Transport.(*http.Transport).TLSClientConfig
	return s, func() { h.CloseClientConnections(); h.Close() }
}

// Answer has f answer from now on, in place of an etcd; nil is the etcd again.
func (s *Server) Answer(f http.HandlerFunc) {
	if f == nil {
		s.answer.Store(nil)
		return
	}
	s.answer.Store(&f)
}

// Fail has every call fail with that status.
func (s *Server) Fail(code etcd.Code, message string) {
	s.Answer(func(w http.ResponseWriter, _ *http.Request) { end(w, code, message) })
}

func end(w http.ResponseWriter, code etcd.Code, message string) {
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(code)))
	w.Header().Set(http.TrailerPrefix+"Grpc-Message", message)
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f := s.answer.Load(); f != nil {
		(*f)(w, r)
		return
	}
	in, err := io.ReadAll(r.Body)
	if err != nil || len(in) < 5 || r.ProtoMajor != 2 || r.Header.Get("Content-Type") != "application/grpc" ||
		r.Header.Get("TE") != "trailers" || int(binary.BigEndian.Uint32(in[1:])) != len(in)-5 {
		http.Error(w, "not a call of gRPC", http.StatusUnsupportedMediaType)
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	out, err := s.reply(r.Context(), strings.TrimPrefix(r.URL.Path, "/etcdserverpb."), in[5:])
	if err != nil {
		status := &etcd.StatusError{Code: etcd.InvalidArgument, Message: err.Error()}
		errors.As(err, &status)
		end(w, status.Code, status.Message)
		return
	}
	// No browser reads this.
	_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(out))), out...)) //nolint:gosec
	end(w, etcd.OK, "")
}

func (s *Server) reply(ctx context.Context, method string, in []byte) (out []byte, err error) {
	switch method {
	case "Cluster/MemberList":
		return s.members(in)
	case "Maintenance/Status":
		return s.status(), nil
	case "Maintenance/Alarm":
		for _, a := range s.Alarms {
			out = wire.AppendBytes(out, 2, wire.AppendNumber(wire.AppendNumber(nil, 1, a.Member), 2, a.Kind))
		}
		return out, nil
	case "KV/Range":
		return s.get(ctx, in)
	case "KV/Txn":
		return s.commit(ctx, in)
	}
	return s.lease(ctx, method, in)
}

func (s *Server) lease(ctx context.Context, method string, in []byte) (out []byte, err error) {
	var n int64
	if err := wire.Decode(in, wire.Fields{1: wire.Number(&n)}); err != nil {
		return nil, err
	}
	switch method {
	case "Lease/LeaseGrant":
		id, err := s.Store.Grant(ctx, time.Duration(n)*time.Second)
		return wire.AppendNumber(wire.AppendNumber(nil, 2, id), 3, n), err
	case "Lease/LeaseKeepAlive":
		ttl, err := s.Store.KeepAlive(ctx, etcd.Lease(n))
		return wire.AppendNumber(wire.AppendNumber(nil, 2, n), 3, int64(ttl/time.Second)), err
	case "Lease/LeaseRevoke":
		return nil, s.Store.Revoke(ctx, etcd.Lease(n))
	}
	return nil, &etcd.StatusError{Code: 12, Message: "unknown method"}
}
