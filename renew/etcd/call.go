// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd/wire"
)

// call sends a message to a method, such as KV/Range, and reads the answer into fields.
func (c *Client) call(ctx context.Context, method string, in []byte, fields wire.Fields) error {
	out, err := c.exchange(ctx, method, in)
	if err == nil {
		if err = wire.Decode(out, fields); err != nil {
			err = fmt.Errorf("%w: %v", ErrAnswer, err)
		}
	}
	if err != nil {
		return fmt.Errorf("asking etcd at %s for %s: %w", c.endpoint, method, err)
	}
	return nil
}

// exchange sends one message and reads one.
func (c *Client) exchange(ctx context.Context, method string, in []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(in)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint+"/etcdserverpb."+method,
		bytes.NewReader(append(body, in...)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	// What is not done by then, the server need not begin.
	req.Header.Set("Grpc-Timeout", strconv.FormatInt(c.timeout.Milliseconds(), 10)+"m")
	resp, err := c.roundTrip(req)
	if err != nil {
		c.Close() // a connection that lost a call may be dead, and the next one would wait for it too
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		c.Close()
		return nil, err
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("%w: more than %d bytes", ErrAnswer, maxAnswer)
	}
	if err := judge(resp); err != nil {
		return nil, err
	}
	return message(answer)
}
