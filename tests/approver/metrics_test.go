// SPDX-License-Identifier: Apache-2.0

//go:build real

package approver

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// bearer makes a token that the API server knows.
func (c *cluster) bearer(id string) string {
	c.t.Helper()
	token, err := c.MakeToken(c.t.Context(), controlplane.Token{ID: id, Secret: "0123456789abcdef",
		Groups: csr.BootstrapGroup})
	must.Do(c.t, err)
	return token
}

// monitor installs the rights of components/monitoring and returns a token that may read the metrics.
func (c *cluster) monitor() (token string) {
	c.t.Helper()
	rights, err := os.ReadFile("../../packaging/kubernetes/components/monitoring/rbac.yaml")
	must.Do(c.t, err)
	must.Do(c.t, c.Apply(c.t.Context(), rights))
	token = c.bearer("dddddd")
	c.kubectl("create", "clusterrolebinding", "prometheus", "--clusterrole=node-cert-controller-metrics-reader",
		"--user=system:bootstrap:dddddd")
	return token
}

// scrape reads the metrics by HTTPS, with a token if there is one.
func scrape(t *testing.T, address, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	must.Do(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	return resp.StatusCode, string(answer)
}

// metric is what the approver's metrics say of one.
func (c *cluster) metric(address, token, name string) int {
	c.t.Helper()
	code, text := scrape(c.t, address, token)
	found := regexp.MustCompile(`(?m)^` + name + ` (\d+)$`).FindStringSubmatch(text)
	if found == nil {
		c.t.Fatalf("no metric %s: %d %s", name, code, text)
	}
	n, err := strconv.Atoi(found[1])
	must.Do(c.t, err)
	return n
}

func TestOnlyWhoeverMayReadTheMetricsDoes(t *testing.T) {
	c := start(t)
	reader, stranger := c.monitor(), c.bearer("eeeeee")
	address := freePort(t)
	c.approver("--metrics-bind-address", address)
	c.until("the reader may read", func() bool {
		code, _ := scrape(t, address, reader)
		return code == http.StatusOK
	})
	for sentence, wrong := range map[string]struct {
		token string
		code  int
	}{
		"nobody": {"", http.StatusUnauthorized},
		// The API server says that it does not know the token, which controller-runtime takes for a failure.
		"a token that nobody made": {"aaaaaa.0123456789abcdef", http.StatusInternalServerError},
		"a user without the right": {stranger, http.StatusForbidden},
	} {
		if code, text := scrape(t, address, wrong.token); code != wrong.code || strings.Contains(text, "node_cert") {
			t.Errorf("%s gets %d, want %d: %.200s", sentence, code, wrong.code, text)
		}
	}
	c.until("the replica leads, and says so", func() bool {
		_, text := scrape(t, address, reader)
		return strings.Contains(text, `leader_election_master_status{name="node-cert-controller"} 1`)
	})
}
