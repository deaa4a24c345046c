// SPDX-License-Identifier: Apache-2.0

//go:build real

package enable

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const (
	bootstrapKubeconfig = "/etc/kubernetes/kubeconfig"
	kubeletKubeconfig   = "/var/lib/kubelet/kubeconfig"
)

// definitions installs OpenShift's own definitions of what we apply there, with the validation that is in them.
const definitions = `api=$(go list -C tests/contract -m -f '{{.Dir}}' github.com/openshift/api)/payload-manifests/crds
oc create namespace openshift-machine-api
for kind in machineconfigs machineconfigurations machineosconfigs; do oc create -f $api/0000_80_machine-config_01_$kind.crd.yaml; done
oc wait --for=condition=Established crd/machineconfigs.machineconfiguration.openshift.io crd/machineconfigurations.operator.openshift.io crd/machineosconfigs.machineconfiguration.openshift.io
until oc get machineconfigurations,machineconfigs,machineosconfigs; do :; done`

// openShift makes the shared control plane one of OpenShift: its kinds, its object, and the ConfigMap with the
// API server's CA.
func openShift(t *testing.T, e *env) {
	t.Helper()
	ctx := t.Context()
	e.must(t, definitions)
	for _, step := range []func(context.Context) error{e.plane.InstallOpenShiftCRD, e.plane.InstallOpenShift} {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	store := controllerconfig.Store{API: controllerconfig.OpenShift, URL: e.plane.URL(), Client: e.plane.AdminClient()}
	if _, err := store.Create(ctx, controllerconfig.Spec{KubeAPIServerServingCAData: e.ca, RootCAData: e.ca}); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata":   map[string]any{"name": "kubeconfig-data", "namespace": controlplane.MachineConfigNamespace},
		"binaryData": map[string]any{"ca-bundle.crt": e.plane.CA().PEM()}})
	if err == nil {
		err = e.plane.Apply(ctx, data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// machineConfigServer is OpenShift's, as far as a machine that asks for its configuration sees: it serves what
// the MachineConfig holds. The Secret that machines start with leads there.
func machineConfigServer(t *testing.T, e *env) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		config, err := e.plane.Kubectl(r.Context(), "get", "machineconfig", "99-worker-node-cert-agent", "-o",
			"jsonpath={.spec.config}")
		if err != nil || r.URL.Path != "/config/worker" {
			http.Error(w, fmt.Sprint(err), http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(config))
	}))
	t.Cleanup(s.Close)
	e.must(t, `oc -n openshift-machine-api create secret generic worker-user-data --from-literal=disableTemplating=true --from-literal=userData='`+
		`{"ignition":{"version":"3.2.0","config":{"merge":[{"source":"`+s.URL+`/config/worker"}]}}}'`)
}

// ofTheFirstBoot is a kubeconfig as the machine config server gives it to a node.
func ofTheFirstBoot(ca []byte) host.File {
	return host.File{Mode: 0o600, Data: kubeconfigs.Node(ca, "not-ours")}
}

// TestAWorkerOfOpenShiftIsEnabledByAMachineConfig goes the way of a new machine: the user data of its Secret
// lead to the machine config server, Ignition applies both, the image is the one of the Containerfile, and at the
// first boot the kubelet, which is on the allowlist, is restarted with the CA of the ConfigMap.
func TestAWorkerOfOpenShiftIsEnabledByAMachineConfig(t *testing.T) {
	e := sharedEnv(t)
	openShift(t, e)
	machineConfigServer(t, e)
	provision, err := script(install, "OpenShift and OKD")
	if err != nil {
		t.Fatal(err)
	}
	e.must(t, provision)
	wantNoToken(t, e)
	wantValid(t, e)
	userData := e.must(t, "oc -n openshift-machine-api get secret worker-user-data-node-cert-agent -o "+
		"'jsonpath={.data.userData}' | base64 -d")
	old := ofTheFirstBoot(testpki.NewCA("old"))
	n := boot(t, host.Options{Name: "worker", Base: layeredImage(t, e), Prepare: ignite(t, []byte(userData)),
		Enable: []string{"kubelet.service"},
		Files: firstBoot(map[string]host.File{"/etc/systemd/system/kubelet.service": standIn("kubelet"),
			bootstrapKubeconfig: old, kubeletKubeconfig: old})})
	n.awaitSynced()
	next := ofTheFirstBoot(e.plane.CA().PEM()).Data
	n.AwaitFile(bootstrapKubeconfig, next)
	n.AwaitFile(kubeletKubeconfig, next)
	n.awaitLoads("kubelet", "start\nstart")
	n.want("stat -c '%a %U' "+tokenFile+" /etc/node-cert-agent/bootstrap.d", "600 root\n700 root")
	n.want("grep -c ^profile: /etc/node-cert-agent/config.d/50-site.yaml", "1")
}

// wantNoToken fails if a MachineConfig leads to the token, in whatever encoding Ignition has for files.
func wantNoToken(t *testing.T, e *env) {
	t.Helper()
	config := e.must(t, "oc get machineconfig 99-worker-node-cert-agent -o yaml")
	if strings.Contains(config, "bootstrap") || strings.Contains(config, "token") {
		t.Errorf("the MachineConfig speaks of a token:\n%s", config)
	}
}

// wantValid has the API server check what else is shipped and described for OpenShift, and refuse what is wrong.
func wantValid(t *testing.T, e *env) {
	t.Helper()
	cluster, err := script(openShiftPage, "The cluster")
	if err != nil {
		t.Fatal(err)
	}
	e.must(t, cluster)
	if args := e.must(t, "oc -n node-cert-agent get deployment node-cert-controller -o "+
		"'jsonpath={.spec.template.spec.containers[0].args}'"); !strings.Contains(args, `"--machines"`) {
		t.Errorf("the approver runs with %s, want --machines among them", args)
	}
	all, err := sections(openShiftPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.heading != "The image" {
			continue
		}
		for _, text := range s.blocks["yaml"] {
			if err := e.plane.Apply(t.Context(), []byte(text)); err != nil {
				t.Error(err)
			}
		}
	}
	const policy = "packaging/openshift/nodedisruptionpolicy.yaml"
	for sentence, wrong := range map[string]string{
		"an action that there is not":  `s/type: None/type: Nothing/`,
		"a key that there is not":      `s/serviceName:/name:/`,
		"nothing beside something":     `s/- type: None/- type: None\n      - type: DaemonReload/`,
		"a unit's name without suffix": `s/name: node-cert-agent.service/name: node-cert-agent/`,
	} {
		if out, err := e.run("sed '" + wrong + "' " + policy +
			" | oc apply --server-side --dry-run=server -f -"); err == nil {
			t.Errorf("a policy with %s was accepted: %s", sentence, out)
		}
	}
}
