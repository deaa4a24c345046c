// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ControllerConfig carries the certificate data of a cluster to its nodes. The agent on each node watches one object of
// this kind, machine-config-controller unless configured otherwise, and writes each field to the file that the node's
// own configuration names. A field that is absent, null, empty or invalid leaves the last good file in place.
//
// It is for clusters that are not OpenShift. The fields are those of OpenShift's own kind which reach a node's disk,
// under the same names, so that one agent reads both.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name=Generation,type=integer,JSONPath=`.metadata.generation`,description="How often the content has changed."
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type ControllerConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Certificate data in PEM, base64-encoded as all bytes are in JSON.
	// +required
	Spec ControllerConfigSpec `json:"spec"`
}

// ControllerConfigSpec is certificate data in PEM.
type ControllerConfigSpec struct {
	// The CA certificates that the kubelet accepts client certificates from, the API server's among them. The name is
	// OpenShift's and older than this use.
	// +optional
	// +nullable
	KubeAPIServerServingCAData []byte `json:"kubeAPIServerServingCAData,omitempty"`
	// The CA certificates that clients on the node verify the API server with.
	// +optional
	// +nullable
	RootCAData []byte `json:"rootCAData,omitempty"`
	// The CA certificates that the cloud provider's API is verified with.
	// +optional
	// +nullable
	CloudProviderCAData []byte `json:"cloudProviderCAData,omitempty"`
	// CA certificates to add to the node's system trust store.
	// +optional
	// +nullable
	AdditionalTrustBundle []byte `json:"additionalTrustBundle,omitempty"`
	// CA certificates per image registry, managed by the cluster. The list is the whole of it: a registry that is no
	// longer listed loses its file. An empty list is taken as missing, not as a wish to remove every file.
	// +optional
	// +listType=atomic
	ImageRegistryBundleData []RegistryBundle `json:"imageRegistryBundleData,omitempty"`
	// CA certificates per image registry, given by users. Where both lists name a registry, this one wins.
	// +optional
	// +listType=atomic
	ImageRegistryBundleUserData []RegistryBundle `json:"imageRegistryBundleUserData,omitempty"`
	// The pull secret of the internal registry, a JSON document as in kubernetes.io/dockerconfigjson. It is a secret:
	// restrict who may read this object.
	// +optional
	// +nullable
	InternalRegistryPullSecret []byte `json:"internalRegistryPullSecret,omitempty"`
}

// RegistryBundle is the CA certificates of one image registry.
type RegistryBundle struct {
	// The registry, host or host:port, with ".." in place of ":" as in the key of a ConfigMap: registry.example.com..5000.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	File string `json:"file"`
	// The registry's CA certificates.
	// +required
	Data []byte `json:"data"`
}
