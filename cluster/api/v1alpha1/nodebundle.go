// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeBundle says where the certificates of one field of the ControllerConfig come from, and when one that no source
// has any more may go. The publisher of node-cert-controller joins the sources and writes the field.
//
// Trust grows at once. It shrinks as spec.removal says, and never because a source is missing, empty or broken:
// what was published last then stays. Deleting a NodeBundle withdraws nothing either.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nb
// +kubebuilder:printcolumn:name=Field,type=string,JSONPath=`.spec.field`
// +kubebuilder:printcolumn:name=Registry,type=string,JSONPath=`.spec.registry`,priority=1
// +kubebuilder:printcolumn:name=Published,type=string,JSONPath=`.status.conditions[?(@.type=="Published")].reason`
// +kubebuilder:printcolumn:name=Certificates,type=integer,JSONPath=`.status.counts.certificates`
// +kubebuilder:printcolumn:name=Nodes,type=string,JSONPath=`.status.counts.nodes`
// +kubebuilder:printcolumn:name=Held,type=integer,JSONPath=`.status.counts.held`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type NodeBundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What to publish, and from where.
	// +required
	Spec NodeBundleSpec `json:"spec"`
	// What is published. The publisher writes it.
	// +optional
	Status NodeBundleStatus `json:"status,omitzero"`
}

// NodeBundleList is a list of NodeBundles.
// +kubebuilder:object:root=true
type NodeBundleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []NodeBundle `json:"items"`
}

// NodeBundleSpec is what to publish, and from where.
// +kubebuilder:validation:XValidation:rule="has(self.registry) == self.field.startsWith('imageRegistryBundle')",message="registry belongs to imageRegistryBundleData and imageRegistryBundleUserData, and to no other field"
type NodeBundleSpec struct {
	// The field of the ControllerConfig that this NodeBundle fills. If two NodeBundles name the same field and
	// registry, the older one is used. It cannot be changed.
	// +required
	// +kubebuilder:validation:Enum=kubeAPIServerServingCAData;rootCAData;cloudProviderCAData;additionalTrustBundle;imageRegistryBundleData;imageRegistryBundleUserData
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the field cannot be changed: make another NodeBundle"
	Field string `json:"field"`
	// The registry, host or host:port, in fields that hold a list. It cannot be changed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the registry cannot be changed: make another NodeBundle"
	Registry string `json:"registry,omitempty"`
	// Where the certificates come from. Published are those of all sources together.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Sources []Source `json:"sources"`
	// When a certificate may go that no source has any more.
	// +optional
	// +kubebuilder:default={policy: WhenConverged}
	Removal Removal `json:"removal,omitzero"`
}

// Source is one place that CA certificates come from, in PEM. It is refused whole if it holds a private key or
// anything else that a node would refuse.
// +kubebuilder:validation:ExactlyOneOf=configMap;secret;clusterTrustBundle;inline
type Source struct {
	// A key of a ConfigMap. The publisher needs the right to get, list and watch it.
	// +optional
	ConfigMap *KeyOf `json:"configMap,omitempty"`
	// A key of a Secret. The publisher needs the right to get, list and watch it, which its namespace grants.
	// +optional
	Secret *KeyOf `json:"secret,omitempty"`
	// A ClusterTrustBundle, if the API server serves the kind.
	// +optional
	ClusterTrustBundle *Named `json:"clusterTrustBundle,omitempty"`
	// The certificates themselves.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1048576
	Inline string `json:"inline,omitempty"`
}

// KeyOf is one key of an object in a namespace.
type KeyOf struct {
	// The namespace of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// The name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// The key below data. Keys below binaryData of a ConfigMap are read too.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// Named is an object without a namespace.
type Named struct {
	// The name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// RemovalPolicy is a rule for taking trust away.
// +kubebuilder:validation:Enum=WhenConverged;Hold;Immediate
type RemovalPolicy string

// WhenConverged waits until every node that counts has what remains. Hold waits for a time. Immediate does not wait.
const (
	WhenConverged RemovalPolicy = "WhenConverged"
	Hold          RemovalPolicy = "Hold"
	Immediate     RemovalPolicy = "Immediate"
)

// Removal says when a certificate may go that no source has any more. While a source cannot be read, none goes,
// whatever the policy is.
// +kubebuilder:validation:XValidation:rule="has(self.hold) == (has(self.policy) && self.policy == 'Hold')",message="hold belongs to the policy Hold, which needs it"
// +kubebuilder:validation:XValidation:rule="!has(self.deadline) || !has(self.policy) || self.policy == 'WhenConverged'",message="deadline belongs to the policy WhenConverged"
// +kubebuilder:validation:XValidation:rule="!has(self.ignoreNodes) || !has(self.policy) || self.policy == 'WhenConverged'",message="ignoreNodes belongs to the policy WhenConverged"
// +kubebuilder:validation:XValidation:rule="!has(self.ignoreNodes) || has(self.ignoreNodes.matchLabels) || has(self.ignoreNodes.matchExpressions)",message="ignoreNodes that selects by nothing would ignore every node"
type Removal struct {
	// WhenConverged waits until every node that counts has all remaining certificates of the field. Hold waits for a
	// time. Immediate does not wait.
	// +optional
	// +kubebuilder:default=WhenConverged
	Policy RemovalPolicy `json:"policy,omitempty"`
	// How long a certificate stays after the last source dropped it, for instance 24h.
	// +optional
	Hold *Duration `json:"hold,omitempty"`
	// How long to wait at most for all nodes to converge, for instance 720h. Without it there is no limit.
	// +optional
	Deadline *Duration `json:"deadline,omitempty"`
	// Nodes that need not converge, by the labels of the Node.
	// +optional
	IgnoreNodes *metav1.LabelSelector `json:"ignoreNodes,omitempty"`
}

// The types of conditions of a NodeBundle.
const (
	// Published tells whether the field has what the sources have.
	Published = "Published"
	// SourcesReady tells whether every source can be read and used.
	SourcesReady = "SourcesReady"
	// Converged tells whether every certificate that is published is still in a source.
	Converged = "Converged"
)

// NodeBundleStatus is what is published.
type NodeBundleStatus struct {
	// The generation of the spec that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Published: the field has every certificate of the sources. SourcesReady: every source can be used. Converged:
	// no certificate is published that the sources no longer have.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// The certificates that are published, in their order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Certificates []Certificate `json:"certificates,omitempty"`
	// What the nodes were asked before a certificate goes that no source has any more.
	// +optional
	Asked *Asked `json:"asked,omitempty"`
	// The nodes that have not answered, or lack something that remains. The first hundred, by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Blocking []Blocking `json:"blocking,omitempty"`
	// Figures for printing.
	// +optional
	Counts Counts `json:"counts,omitzero"`
}

// Asked is a question to the nodes: whether they have what the sources hold. A node answers it by following that
// version of the ControllerConfig, or a later one, and reporting what it has.
type Asked struct {
	// A digest of the versions of the sources. Once they change, the nodes are asked again.
	// +required
	Sources string `json:"sources"`
	// The metadata.uid of the ControllerConfig.
	// +required
	UID string `json:"uid"`
	// The metadata.resourceVersion of the ControllerConfig that a node must have followed.
	// +required
	ResourceVersion string `json:"resourceVersion"`
}

// Blocking is a node for which a certificate stays.
type Blocking struct {
	// The name of the node.
	// +required
	Node string `json:"node"`
	// What it lacks.
	// +required
	Reason string `json:"reason"`
	// When it last reported, or joined the cluster if it never did.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// Certificate is one that is published.
type Certificate struct {
	// The SHA-256 of the certificate's DER encoding.
	// +required
	SHA256 string `json:"sha256"`
	// The subject, in the form of RFC 2253.
	// +optional
	Subject string `json:"subject,omitempty"`
	// When the certificate expires.
	// +optional
	NotAfter metav1.Time `json:"notAfter,omitzero"`
	// Since when no source has it. It stays published until it may go.
	// +optional
	KeptSince *metav1.Time `json:"keptSince,omitempty"`
	// Why it stays, if no source has it.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Set if it went from the sources together with every other certificate, which may be a mistake. It then stays until
	// the annotation node-cert-agent.io/replaced of the NodeBundle names it.
	// +optional
	Replaced bool `json:"replaced,omitempty"`
}

// Counts are figures for printing.
type Counts struct {
	// How many certificates are published.
	Certificates int `json:"certificates"`
	// How many of them no source has any more.
	Held int `json:"held"`
	// How many nodes have all of them, of how many: 4/5. Absent if that is not known.
	// +optional
	Nodes string `json:"nodes,omitempty"`
}
