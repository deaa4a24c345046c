// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

const (
	// node is the name of the host, and token the id of its bootstrap token.
	node  = "node"
	token = "demo01"
	// asNode is a kubeconfig, beside the administrator's, that goes by the agent's identity.
	asNode = "node.kubeconfig"
)

// identity is how a host with nothing but a token comes to speak to the API server.
func (s *story) identity(ctx context.Context) error {
	s.chapter("From a token to an identity")
	if err := s.offerToken(ctx); err != nil {
		return err
	}
	s.say("The host has a file with a bootstrap token, which may ask for a certificate and do nothing else. The cluster")
	s.say("has published a controllerconfig with three bundles. Then the agent starts.")
	if err := s.show(ctx, "ls "+s.name(cluster.BootstrapDir)); err != nil {
		return err
	}
	command, err := s.startAgent(ctx)
	if err != nil {
		return err
	}
	s.quote("$ " + command)
	if err := s.awaitIdentity(ctx, "pending"); err != nil {
		return err
	}
	s.say("It has made a key, which never leaves the host, and asks for a certificate. Nobody approves yet:")
	if err := s.showAdmin(ctx, "kubectl get csr"); err != nil {
		return err
	}
	if err := s.approval(ctx); err != nil {
		return err
	}
	return s.narrow(ctx)
}

// offerToken makes the node known, its token, and the ControllerConfig.
func (s *story) offerToken(ctx context.Context) error {
	if err := s.plane().Apply(ctx, []byte("{apiVersion: v1, kind: Node, metadata: {name: "+node+"}}")); err != nil {
		return err
	}
	if err := cluster.MakeToken(ctx, s.plane(), token); err != nil {
		return err
	}
	_, err := s.plane().Kubectl(ctx, "-n", "kube-system", "label", "secret", "bootstrap-token-"+token,
		"node-cert-agent.io/single-use=true")
	if err != nil {
		return err
	}
	if err := s.putToken(); err != nil {
		return err
	}
	_, err = s.store().Create(ctx, controllerconfig.Spec{KubeAPIServerServingCAData: s.first, RootCAData: s.root,
		ImageRegistryBundleData: []controllerconfig.Registry{{File: "registry.example.org..5000", Data: s.root}}})
	return err
}

// approval starts the approver and waits until the agent has what it asked for.
func (s *story) approval(ctx context.Context) (err error) {
	s.say("Now the approver starts. It checks who asks for which node, with which key and for which use, and approves.")
	if s.approver, err = cluster.StartApprover(s.plane(), s.approverBinary()); err != nil {
		return err
	}
	s.quote("cluster$ node-cert-controller --kubeconfig controller.kubeconfig &")
	if err := s.awaitIdentity(ctx, "active"); err != nil {
		return err
	}
	command := `kubectl get csr -o jsonpath='{.items[*].status.conditions[*].message}'`
	if err := s.showAdmin(ctx, command); err != nil {
		return err
	}
	s.say("The agent has proven the certificate over a fresh connection, and has taken the token out of use; so has the")
	s.say("approver, when the node had reported under its new name.")
	if err := wait.Until(ctx, "the end of the token", func() bool {
		left, err := os.ReadDir(s.path(cluster.BootstrapDir))
		secret, _ := s.asAdmin(ctx, "kubectl get secrets -n kube-system -o name")
		return err == nil && len(left) == 0 && !strings.Contains(secret, "bootstrap-token-"+token)
	}); err != nil {
		return err
	}
	if err := s.show(ctx, s.status()+" | grep -E '^(Identity|Certificate)'"); err != nil {
		return err
	}
	return s.show(ctx, "ls "+s.name(cluster.BootstrapDir)+" | wc -l")
}

// narrow shows what the certificate is good for, and what not.
func (s *story) narrow(ctx context.Context) error {
	file := s.path("/var/lib/node-cert-agent/identity.pem")
	config := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: c, cluster: {server: %q, certificate-authority: pki/ca.crt}}],
users: [{name: u, user: {client-certificate: %q, client-key: %[2]q}}], contexts: [{name: x, context: {cluster: c, user: u}}]}`, s.plane().URL(), file)
	if err := os.WriteFile(filepath.Join(s.plane().Dir(), asNode), []byte(config), 0o600); err != nil {
		return err
	}
	s.say("The certificate may read one object and write one. This is kubectl with it:")
	for _, try := range []struct {
		what    string
		refused bool
	}{
		{"get controllerconfigs.node-cert-agent.io machine-config-controller", false},
		{"get controllerconfigs.node-cert-agent.io another", true},
		{"get secrets -n kube-system", true},
	} {
		command := "kubectl --kubeconfig " + asNode + " " + try.what
		out, err := s.asAdmin(ctx, command)
		var failed *exec.ExitError
		if (err != nil) != try.refused || try.refused && (!errors.As(err, &failed) || !strings.Contains(out, "Forbidden")) {
			return fmt.Errorf("%s: %s %v", command, out, err)
		}
		s.quote("cluster$ " + command + "\n" + out)
	}
	return nil
}

func (s *story) awaitIdentity(ctx context.Context, state report.IdentityState) error {
	return s.awaitStatus(ctx, "an identity that is "+string(state),
		func(st report.Status) bool { return st.Identity != nil && st.Identity.State == state })
}

// asAdmin runs a shell command beside the control plane, as its administrator.
func (s *story) asAdmin(ctx context.Context, command string) (string, error) {
	servers, err := controlplane.Build(ctx, io.Discard)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = s.plane().Dir()
	cmd.Env = []string{"HOME=" + cmd.Dir, "KUBECONFIG=admin.kubeconfig", "PATH=" + servers.Dir + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// showAdmin is show for asAdmin.
func (s *story) showAdmin(ctx context.Context, command string) error {
	out, err := s.asAdmin(ctx, command)
	if err != nil {
		return fmt.Errorf("cluster$ %s\n%s%w", command, out, err)
	}
	s.quote("cluster$ " + command + "\n" + out)
	return nil
}
