// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeCertificateState says how the node of the same name stands. The agent of the node writes status, and nobody else
// does: facts and no wishes, of which nothing is secret. The approver of node-cert-controller keeps its notes about the
// node in spec, where no agent can write.
//
// A time to come is shown as it is: kubectl prints dates as ages, and has none for the future.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ncs
// +kubebuilder:printcolumn:name=State,type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name=Synced,type=string,JSONPath=`.status.conditions[?(@.type=="Synced")].status`,description="Whether the host has what the ControllerConfig asks for."
// +kubebuilder:printcolumn:name=Config,type=string,JSONPath=`.status.synced.resourceVersion`,description="The version of the ControllerConfig that the host was last in line with, refusals aside."
// +kubebuilder:printcolumn:name=Held,type=integer,JSONPath=`.status.counts.held`,description="Removals of trust that wait."
// +kubebuilder:printcolumn:name=Pending,type=integer,JSONPath=`.status.counts.pending`,description="Units that have yet to load their files again."
// +kubebuilder:printcolumn:name=Breaker,type=string,JSONPath=`.status.breaker.unit`,description="The unit whose actions are stopped because they failed too often."
// +kubebuilder:printcolumn:name=First expiry,type=string,JSONPath=`.status.earliestExpiry`,description="When the first certificate in a managed file expires."
// +kubebuilder:printcolumn:name=May be off until,type=string,JSONPath=`.status.identity.expires`,description="When the node's own identity expires."
// +kubebuilder:printcolumn:name=Seen,type=date,JSONPath=`.status.heartbeat`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`,priority=1
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.status.agent.version`,priority=1
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.reason`,priority=1
type NodeCertificateState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What the approver keeps about the node, by server-side apply with the field manager node-cert-controller-approver.
	// +optional
	Spec NodeCertificateStateSpec `json:"spec,omitzero"`
	// What the agent reports, by server-side apply with the field manager node-cert-agent.
	// +optional
	Status NodeCertificateStateStatus `json:"status,omitzero"`
}

// NodeCertificateStateSpec is what the approver keeps about a node.
type NodeCertificateStateSpec struct {
	// When the approver first found the node in the inventory after it was admitted. From then on a renewal needs the
	// node to be there.
	// +optional
	KnownSince metav1.Time `json:"knownSince,omitzero"`
	// The last first certificate that was approved for this node.
	// +optional
	Bootstrap *Bootstrap `json:"bootstrap,omitempty"`
}

// Bootstrap is the approval of a node's first certificate.
type Bootstrap struct {
	// The name of the CertificateSigningRequest.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Request string `json:"request,omitempty"`
	// Who asked for it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Requester string `json:"requester,omitempty"`
	// The SHA-256 of the key's SubjectPublicKeyInfo.
	// +optional
	PublicKey Digest `json:"publicKey,omitempty"`
	// When it was approved.
	// +optional
	Approved metav1.Time `json:"approved,omitzero"`
	// The Secret in kube-system that is to be deleted when the agent first writes under the new identity. Absent when
	// there is none, or when it has been deleted.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret,omitempty"`
}

// Digest is a SHA-256 in lower-case hexadecimal.
// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
type Digest string

// The types of conditions of a NodeCertificateState.
const (
	// Synced tells whether the host has what the ControllerConfig asks for.
	Synced = "Synced"
	// IdentityValid tells whether the agent speaks to the API server under an identity that is good.
	IdentityValid = "IdentityValid"
	// ActionsDone tells whether every unit has loaded its files.
	ActionsDone = "ActionsDone"
	// ConsumersLive tells whether every server that can be asked uses its files.
	ConsumersLive = "ConsumersLive"
	// Paused tells whether the host is paused: nothing is taken away and no unit acted on.
	Paused = "Paused"
)

// NodeCertificateStateStatus is what the agent reports.
type NodeCertificateStateStatus struct {
	// Synced: the host has what the ControllerConfig asks for. IdentityValid: the agent's own identity is good.
	// ActionsDone: every unit has loaded its files. ConsumersLive: every server that can be asked uses its files. Paused:
	// nothing is taken away and no unit acted on.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []Condition `json:"conditions,omitempty"`
	// The state of watching the ControllerConfig, in a word or two.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	State string `json:"state,omitempty"`
	// The fact behind the state, in one sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// When the agent wrote this, by its own clock. It writes at least once an hour.
	// +optional
	Heartbeat metav1.Time `json:"heartbeat,omitzero"`
	// The program that reports.
	// +optional
	Agent Agent `json:"agent,omitzero"`
	// The version of the ControllerConfig that the host was last in line with, refusals aside.
	// +optional
	Synced ConfigVersion `json:"synced,omitzero"`
	// The lengths of the lists below, for printing.
	// +optional
	Counts StateCounts `json:"counts,omitzero"`
	// When the first certificate in any managed file expires.
	// +optional
	EarliestExpiry metav1.Time `json:"earliestExpiry,omitzero"`
	// The fields of the ControllerConfig that the host takes. Of others it has no file.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	Fields []string `json:"fields,omitempty"`
	// What is on disk. A file that is not yet as it shall be is without digest and certificates.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Files []StateFile `json:"files,omitempty"`
	// Certificates that the ControllerConfig dropped and the node still trusts, and without one the files of registries
	// that it no longer lists.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Held []StateHeld `json:"held,omitempty"`
	// Units that have yet to load their files again.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Pending []StatePending `json:"pending,omitempty"`
	// Present while the actions of a unit are stopped because they failed too often.
	// +optional
	Breaker *StateBreaker `json:"breaker,omitempty"`
	// The certificate that this was written with.
	// +optional
	Identity *StateIdentity `json:"identity,omitempty"`
	// The pairs of certificate and key that the host's servers and clients use, as far as their ends go. Absent if the
	// agent does not look at them.
	// +optional
	Renewal *StateRenewal `json:"renewal,omitempty"`
}

// Condition is a metav1.Condition that says which version of the ControllerConfig it is about, in place of a generation
// of the object that it stands in.
type Condition struct {
	// Synced, IdentityValid, ActionsDone, ConsumersLive or Paused.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Type string `json:"type"`
	// True, False or Unknown.
	// +required
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status metav1.ConditionStatus `json:"status"`
	// One word for programs.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`
	Reason string `json:"reason"`
	// The fact behind the status, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// When the status last changed, by the clock of the node.
	// +required
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// The metadata.resourceVersion of the ControllerConfig that the agent had read.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ObservedVersion string `json:"observedVersion,omitempty"`
}

// Agent is the program that reports.
type Agent struct {
	// The version of node-cert-agent.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
}

// ConfigVersion is one version of one ControllerConfig.
type ConfigVersion struct {
	// The metadata.uid of the ControllerConfig.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
	// The metadata.resourceVersion of the ControllerConfig.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// StateCounts are the lengths of lists.
type StateCounts struct {
	// How many files are managed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Files int `json:"files"`
	// How many removals of trust wait.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Held int `json:"held"`
	// How many units have yet to load their files again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pending int `json:"pending"`
}

// StateFile is one managed file.
type StateFile struct {
	// The field of the ControllerConfig that the file holds.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Field string `json:"field"`
	// The registry, in fields that hold a list.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +default=""
	Name string `json:"name"`
	// The digest of the file's bytes.
	// +optional
	SHA256 Digest `json:"sha256,omitempty"`
	// The SHA-256 of each certificate's DER.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Certificates []Digest `json:"certificates,omitempty"`
	// When the first of them expires.
	// +optional
	EarliestExpiry metav1.Time `json:"earliestExpiry,omitzero"`
	// Whether the file's consumers were seen to use it, by the worst. Absent while that is open.
	// +optional
	// +kubebuilder:validation:Enum=live;stale;unknown
	Use string `json:"use,omitempty"`
}

// StateHeld is one removal of trust that waits.
type StateHeld struct {
	// The field of the ControllerConfig.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Field string `json:"field,omitempty"`
	// The registry, in fields that hold a list.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name,omitempty"`
	// The SHA-256 of the certificate's DER. Absent if the whole file is to go.
	// +optional
	Certificate Digest `json:"certificate,omitempty"`
	// Absent while it is not only a matter of time.
	// +optional
	Until metav1.Time `json:"until,omitzero"`
	// Why it waits.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// StatePending is a unit that has yet to load its files again.
type StatePending struct {
	// The name of the unit.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Unit string `json:"unit,omitempty"`
	// What is to be done to it: reload or try-restart.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Verb string `json:"verb,omitempty"`
	// Why it has not been done.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// StateBreaker is a unit whose actions are stopped because they failed too often.
type StateBreaker struct {
	// The name of the unit.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Unit string `json:"unit,omitempty"`
	// Since when they are stopped.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// The last failure.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// StateIdentity is the certificate of an agent.
type StateIdentity struct {
	// The certificate's serial number, in lower-case hexadecimal.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{1,40}$`
	Serial string `json:"serial,omitempty"`
	// The SHA-256 of the key's SubjectPublicKeyInfo.
	// +optional
	PublicKey Digest `json:"publicKey,omitempty"`
	// NotBefore.
	// +optional
	Issued metav1.Time `json:"issued,omitzero"`
	// NotAfter. The node may be off until then and come back without a token.
	// +optional
	Expires metav1.Time `json:"expires,omitzero"`
}

// StateRenewal says when the pairs of a host end: certificates with their keys, as servers and clients there use
// them. A CA is none of them.
type StateRenewal struct {
	// When the first pair ends that nobody on the host will renew. Absent if each will be renewed there.
	// +optional
	UnrenewedNotAfter metav1.Time `json:"unrenewedNotAfter,omitzero"`
	// When the first pair ends, whoever will renew it. Absent if there is no pair.
	// +optional
	EarliestNotAfter metav1.Time `json:"earliestNotAfter,omitzero"`
	// When the host looked at them, by its own clock.
	// +required
	ObservedTime metav1.Time `json:"observedTime"`
}

// Reported is when the agent last wrote the status, as the API server noted it in the managed fields: the heartbeat is
// by the clock of the node. Nobody else may write the status. It is zero if nobody did.
func Reported(managed []metav1.ManagedFieldsEntry) (at time.Time) {
	for _, m := range managed {
		if m.Subresource == "status" && m.Time != nil && m.Time.After(at) {
			at = m.Time.Time
		}
	}
	return at
}
