// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// movedServer is where the host finds the cluster that it moves to.
const movedServer = "https://127.0.0.1:7443"

// successor is a second cluster, up beside the first, with an object of its own. It knows the identities
// of both.
func successor(n *node) (moved *controlplane.Plane, there []byte) {
	n.T.Helper()
	trusted := filepath.Join(n.T.TempDir(), "client-ca.crt")
	moved, err := controlplane.Start(n.Ctx, controlplane.Options{APIServerOff: true,
		APIServerArgs: []string{"--client-ca-file=" + trusted}})
	n.Must(err)
	n.T.Cleanup(func() { n.Must(moved.Stop()) })
	n.Must(os.WriteFile(trusted, slices.Concat(moved.CA().PEM(), n.Plane.CA().PEM()), 0o600))
	n.Must(moved.StartAPIServer(n.Ctx))
	n.Must(moved.InstallCRD(n.Ctx))
	n.Must(moved.AllowAgents(n.Ctx))
	there = testpki.NewCA("there")
	_, err = controllerconfig.Store{API: controllerconfig.Small, URL: moved.URL(),
		Client: moved.AdminClient()}.Create(n.Ctx, kubeletCA(there))
	n.Must(err)
	u, err := url.Parse(moved.URL())
	n.Must(err)
	port, err := n.Host.Listen(n.Ctx, "127.0.0.1:7443", u.Host)
	n.Must(err)
	n.T.Cleanup(port.Close)
	return moved, there
}

// arrives approves the move and makes sure that it lasts when the old cluster is gone.
func (n *node) arrives(moved *controlplane.Plane, there []byte) {
	n.T.Helper()
	n.Await("the file of the other cluster", func() bool {
		n.Must(cluster.Decide(n.Ctx, moved, "approve")) // the identity is renewing before it has asked
		return bytes.Equal(n.File(cluster.KubeletCA), there)
	})
	n.Must(n.Plane.StopAPIServer(n.Ctx, syscall.SIGKILL))
	n.Run("systemctl", "restart", "node-cert-agent.service")
	n.awaitState("following")
	n.wantFile(cluster.KubeletCA, there)
}

func TestAClusterThatMovedIsFollowedByAFile(t *testing.T) {
	n := identified(t)
	moved, there := successor(n)
	n.Must(cluster.MakeToken(n.Ctx, moved, "token2"))
	n.Must(n.PutTokenFor(moved, movedServer, "20-moved", "token2"))
	n.awaitIdentity("renewing")
	n.follows() // the old cluster, meanwhile
	n.arrives(moved, there)
}

func TestAClusterThatAnnouncesItsMoveIsFollowed(t *testing.T) {
	n := identified(t)
	moved, there := successor(n)
	impostor, err := json.Marshal(map[string]any{"server": movedServer,
		"certificateAuthorityData": testpki.NewCA("impostor")})
	n.Must(err)
	hint, err := json.Marshal(map[string]any{"server": movedServer, "certificateAuthorityData": moved.CA().PEM()})
	n.Must(err)

	announce := func(text []byte) {
		_, err := n.Store.Annotate(n.Ctx, "node-cert-agent.io/cluster", string(text))
		n.Must(err)
	}
	announce(impostor) // who holds the address and is not verified gets nothing
	n.Await("a reason", func() bool {
		i := n.Status().Identity
		return i != nil && i.State == "active" && strings.Contains(i.Reason, "the announced cluster does not take us yet") &&
			strings.Contains(i.Reason, "unknown authority")
	})
	n.follows()

	announce(hint)
	n.awaitIdentity("renewing")
	n.AwaitRecord(audit.ClusterAnnounced)
	n.follows() // the old cluster, meanwhile
	n.arrives(moved, there)
	n.Await("the hint to be forgotten", func() bool { return len(n.File(stateDir+"cluster-hint.json")) == 0 })
	n.noSecrets()
}
