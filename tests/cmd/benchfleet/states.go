// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// watchStates marks each state object of a node that is written, until ctx ends. It watches metadata only. After the
// API server was lost it watches again.
func (e *env) watchStates(ctx context.Context) error {
	events, err := e.openStates(ctx)
	if err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			if err == nil {
				lines(events, func(line []byte) {
					if i, ok := nodeOf(line); ok {
						e.reports.mark(i, time.Now())
					}
				})
				_ = events.Close() // its end is known
			}
			pause(ctx, retryMin)
			events, err = e.openStates(ctx)
		}
	}()
	return nil
}

func (e *env) openStates(ctx context.Context) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.plane.URL()+statesPath+"?watch=1&timeoutSeconds=7200", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	res, err := e.admin.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		return nil, fmt.Errorf("watching the state objects: %s", res.Status)
	}
	return res.Body, nil
}

// lines calls do with each line, and returns when there are no more. A line is valid during the call only.
func lines(from io.Reader, do func([]byte)) {
	var rest []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		for part := buf[:n]; len(part) > 0; {
			line, after, complete := bytes.Cut(part, []byte{'\n'})
			rest, part = append(rest, line...), after
			if complete {
				do(rest)
				rest = rest[:0]
			}
		}
		if err != nil {
			return
		}
	}
}

// nodeOf is the number of the node of which an event tells, if its agent has reported: the approver makes the object.
// What is first in an object of metadata is its name.
func nodeOf(event []byte) (int, bool) {
	if !bytes.Contains(event, []byte(`"manager":"node-cert-agent"`)) {
		return 0, false
	}
	_, rest, ok := bytes.Cut(event, []byte(`"metadata":{"name":"node-`))
	digits, _, ended := bytes.Cut(rest, []byte{'"'})
	i, err := strconv.Atoi(string(digits))
	return i, ok && ended && err == nil
}
