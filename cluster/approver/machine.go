// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"context"
	"fmt"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var machineKind = schema.GroupVersionResource{Group: "machine.openshift.io", Version: "v1beta1", Resource: "machines"}

const machineNamespace = "openshift-machine-api"

// machine is what of OpenShift's Machine says which Node it is or will be. Source: github.com/openshift/api,
// machine/v1beta1/types_machine.go.
type machine struct {
	meta.ObjectMeta `json:"metadata"`
	Status          struct {
		NodeRef *struct {
			Name string `json:"name"`
		} `json:"nodeRef"`
		Addresses []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses"`
	} `json:"status"`
}

// is reports whether the machine is the node. Once a Node has joined, its reference alone counts; before,
// the names by which the platform knows the machine inside the cluster, as OpenShift's own approver of
// kubelets' requests takes them. A machine that is being deleted gets no first certificate.
func (m machine) is(node string) bool {
	if m.DeletionTimestamp != nil {
		return false
	}
	if r := m.Status.NodeRef; r != nil && r.Name != "" {
		return r.Name == node
	}
	for _, a := range m.Status.Addresses {
		if a.Type == "InternalDNS" && a.Address == node {
			return true
		}
	}
	return false
}

// provisioned asks whether there is a Machine for the node. It is asked only when there is no Node, which
// is once for each machine, so that nothing is cached.
func (c *controller) provisioned(ctx context.Context, node string) (bool, error) {
	if c.machines == nil {
		return false, nil
	}
	for next := (meta.ListOptions{Limit: 500}); ; {
		list, err := c.machines.List(ctx, next)
		if err != nil {
			return false, fmt.Errorf("looking for a machine of %s: %v", node, err)
		}
		for _, u := range list.Items {
			if m, err := readMachine(u); err == nil && m.is(node) { // one that cannot be read is not it
				return true, nil
			}
		}
		if next.Continue = list.GetContinue(); next.Continue == "" {
			return false, nil
		}
	}
}

func readMachine(u unstructured.Unstructured) (m machine, err error) {
	return m, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &m)
}
