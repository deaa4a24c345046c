// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	asJSON     = "application/json"
	mergePatch = "application/merge-patch+json"
	statesPath = "/apis/node-cert-agent.io/v1alpha1/nodecertificatestates"
	csrPath    = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	nodesPath  = "/api/v1/nodes"
)

// errAnswer is an answer that is not a success.
type errAnswer struct {
	code int
	text string
}

func (e errAnswer) Error() string { return e.text }

// ask sends one request to the API server. An answer that is not a success is an errAnswer.
func (e *env) ask(ctx context.Context, client *http.Client, method, path, contentType string, body []byte,
) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.plane.URL()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = errAnswer{res.StatusCode, fmt.Sprintf("%s %s: %s: %.300s", method, path, res.Status, answer)}
	}
	return answer, err
}

// each does n things, eight at a time, and returns the first error.
func each(n int, do func(i int) error) error {
	const atOnce = 8
	var workers sync.WaitGroup
	var mu sync.Mutex
	var first error
	for w := range atOnce {
		workers.Go(func() {
			for i := w; i < n; i += atOnce {
				if err := do(i); err != nil {
					mu.Lock()
					defer mu.Unlock()
					if first == nil {
						first = err
					}
					return
				}
			}
		})
	}
	workers.Wait()
	return first
}

// pause lets time pass in which nothing is measured.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// number is the one after a name and a colon in a file like /proc/PID/status; zero if it is not there.
func number(text, name string) int {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+":")
		if words := strings.Fields(rest); ok && len(words) > 0 {
			n, _ := strconv.Atoi(words[0])
			return n
		}
	}
	return 0
}

// memory is what a process has resident and had at most, in MiB, from proc(5). Zero is a process that has ended.
func memory(pid int) (resident, peak float64) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return float64(number(string(status), "VmRSS")) / 1024, float64(number(string(status), "VmHWM")) / 1024
}
