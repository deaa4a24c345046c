// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

// KubectlPath is the program, which may be linked to and not changed.
func (p *Plane) KubectlPath() string { return p.binaries.path(kubectl) }

// Kubectl runs kubectl as the administrator and returns its standard output; its error holds the
// standard error.
func (p *Plane) Kubectl(ctx context.Context, args ...string) (stdout string, err error) {
	return p.kubectl(ctx, nil, args...)
}

// Apply sends manifests, YAML documents of any kinds, by server-side apply.
func (p *Plane) Apply(ctx context.Context, manifests []byte) error {
	_, err := p.kubectl(ctx, manifests, "apply", "--server-side", "-f", "-")
	return err
}

// InstallOpenShiftCRD installs OpenShift's own definition of the ControllerConfig and waits until it
// is served. For two seconds after that, the API server holds back any creation of an object, so
// that its peers, which it takes for granted, learn of the kind first.
func (p *Plane) InstallOpenShiftCRD(ctx context.Context) error {
	return p.install(ctx, p.binaries.path(openShiftCRD), "machineconfiguration.openshift.io/v1")
}

// InstallCRD installs this project's small definition of the same and waits as InstallOpenShiftCRD
// does.
func (p *Plane) InstallCRD(ctx context.Context) error {
	return p.install(ctx, p.manifest("crd/controllerconfigs.node-cert-agent.io.yaml"), "node-cert-agent.io/v1alpha1")
}

// InstallShipped installs what the project ships for a cluster, all of packaging/kubernetes but the
// component single-use, and waits as InstallOpenShiftCRD does. Nothing of it runs here: there is no node.
func (p *Plane) InstallShipped(ctx context.Context) error {
	if _, err := p.kubectl(ctx, nil, "apply", "--server-side", "-k", p.manifest("")); err != nil {
		return err
	}
	err := p.served(ctx, "node-cert-agent.io/v1alpha1/controllerconfigs",
		"node-cert-agent.io/v1alpha1/nodecertificatestates")
	if err != nil {
		return err
	}
	return p.policed(ctx)
}

// policed waits until the API server, which reads policies with a delay and says nothing about it,
// refuses an agent what the policies forbid: to report on another node.
func (p *Plane) policed(ctx context.Context) error {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	agent := p.Client("node-cert-agent:node:nobody", "node-cert-agent:nodes")
	defer agent.CloseIdleConnections()
	return wait.Success(ctx, func() error {
		resp, err := agent.Post(p.URL()+"/apis/node-cert-agent.io/v1alpha1/nodecertificatestates?dryRun=All",
			"application/json", strings.NewReader(
				`{"apiVersion":"node-cert-agent.io/v1alpha1","kind":"NodeCertificateState","metadata":{"name":"another"}}`))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(answer), "'node-cert-agent-states'") {
			err = fmt.Errorf("waiting for the policies: an agent's report on another node was answered %s", resp.Status)
		}
		return err
	})
}

// InstallSingleUse adds the component single-use to what InstallShipped installs.
func (p *Plane) InstallSingleUse(ctx context.Context) error {
	_, err := p.kubectl(ctx, nil, "apply", "--server-side", "-f", p.manifest("components/single-use/rbac.yaml"),
		"-f", p.manifest("components/single-use/fence.yaml"))
	return err
}

// InstallPublisher adds the component publisher: the kind NodeBundle, and the rights of what reads it.
func (p *Plane) InstallPublisher(ctx context.Context) error {
	for _, file := range []string{"node-cert-agent.io_nodebundles.yaml", "rbac.yaml", "force.yaml"} {
		if err := p.applyFile(ctx, p.manifest("components/publisher/"+file)); err != nil {
			return err
		}
	}
	return p.served(ctx, "node-cert-agent.io/v1alpha1/nodebundles")
}

// InstallKubeadm adds the component kubeadm to what InstallPublisher installs.
func (p *Plane) InstallKubeadm(ctx context.Context) error {
	for _, file := range []string{"rbac.yaml", "nodebundles.yaml"} {
		if err := p.applyFile(ctx, p.manifest("components/kubeadm/"+file)); err != nil {
			return err
		}
	}
	return nil
}

// InstallClusterAPI adds the component cluster-api. The kinds of Cluster API are not installed.
func (p *Plane) InstallClusterAPI(ctx context.Context) error {
	for _, file := range []string{"rbac.yaml", "fence.yaml"} {
		if err := p.applyFile(ctx, p.manifest("components/cluster-api/"+file)); err != nil {
			return err
		}
	}
	return nil
}

// InstallMachines makes OpenShift's namespace for Machines and adds the rights of the component
// openshift-machines. The kind itself is not installed.
func (p *Plane) InstallMachines(ctx context.Context) error {
	if err := p.Apply(ctx,
		[]byte("{apiVersion: v1, kind: Namespace, metadata: {name: openshift-machine-api}}")); err != nil {
		return err
	}
	return p.applyFile(ctx, p.manifest("components/openshift-machines/rbac.yaml"))
}

// MachineConfigNamespace is where OpenShift has the ConfigMap kubeconfig-data.
const MachineConfigNamespace = "openshift-machine-config-operator"

// InstallOpenShift adds the component openshift to the agents' rights, and the namespace that it needs.
func (p *Plane) InstallOpenShift(ctx context.Context) error {
	if err := p.Apply(ctx, []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+MachineConfigNamespace+
		`"}}`)); err != nil {
		return err
	}
	return p.applyFile(ctx, p.manifest("components/openshift/rbac.yaml"))
}

// AllowAgents grants the group node-cert-agent:nodes what the shipped manifest grants it: to get,
// list and watch the one object, in both kinds, and what an agent needs beside that. The kinds need not
// be installed. The policies that narrow it come with InstallShipped only.
func (p *Plane) AllowAgents(ctx context.Context) error {
	return p.applyFile(ctx, p.manifest("rbac/agent.yaml"))
}

// AllowBootstrap lets bootstrap tokens with the group system:bootstrappers:node-cert-agent ask for
// certificates, as shipped, and confines what they and the agents ask for by the shipped policy.
func (p *Plane) AllowBootstrap(ctx context.Context) error {
	for _, name := range []string{"components/bootstrap/rbac.yaml", "policy/requests.yaml"} {
		if err := p.applyFile(ctx, p.manifest(name)); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plane) manifest(name string) string {
	return filepath.Join(p.binaries.root, "packaging", "kubernetes", name)
}

func (p *Plane) applyFile(ctx context.Context, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return p.Apply(ctx, b)
}

// install waits for an answer and not for the condition Established, which the API server sets before
// it is done taking up the kind.
func (p *Plane) install(ctx context.Context, file, version string) error {
	if err := p.applyFile(ctx, file); err != nil {
		return err
	}
	return p.served(ctx, version+"/controllerconfigs")
}

func (p *Plane) served(ctx context.Context, kinds ...string) error {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	for _, kind := range kinds {
		err := wait.Success(ctx, func() error { return get200(ctx, p.admin, p.URL()+"/apis/"+kind) })
		if err != nil {
			return fmt.Errorf("waiting for %s to be served: %v", kind, err)
		}
	}
	return nil
}

func (p *Plane) kubectl(ctx context.Context, stdin []byte, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, p.binaries.path(kubectl), args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.dir, bytes.NewReader(stdin), &stdout, &stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "KUBECONFIG=" + p.file("admin.kubeconfig")}
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %v: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
