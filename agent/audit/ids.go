// SPDX-License-Identifier: Apache-2.0

package audit

// ID is a journal MESSAGE_ID: 128 bits in lower-case hexadecimal, never reused for another meaning.
// Source: sd-id128(3), systemd.journal-fields(7).
type ID string

// Kind is one kind of audit record.
type Kind struct {
	ID   ID
	Name string
	// Priority is a syslog level, 0 (emergency) to 7 (debug).
	Priority int
	// Meaning is the sentence in the catalogue and the documentation.
	Meaning string
}

// The records that exist. docs/audit-records.md is generated from this list.
var (
	Started = Kind{"252e8a17ac5f4843b1ccde198f619134", "started", 6,
		"the agent started: version, profile, files and allowlist it works with"}
	Intent = Kind{"a30e252f89f74c2788100e045c8411e9", "intent", 5,
		"files are about to change; sent before the first rename"}
	Written = Kind{"64e4a02100844e01b05b93a733804c23", "written", 5, "one file was replaced or made, durably"}
	Removed = Kind{"1fc59c6b450845feb9f78fca6b3ca792", "removed", 5,
		"one file of ours was removed, because the ControllerConfig no longer lists it"}
	CommitFailed = Kind{"03c24cb6a0b441ba88f8197064c3f6ab", "commit-failed", 3,
		"a commit stopped; the next reconcile plans again from what is on disk"}
	Refused = Kind{"c820ffb51c7d41cab2820a8da7205541", "refused", 4,
		"something was asked for that is invalid or against policy; the last good file stays"}
	Retained = Kind{"8f104ce0c9af4f76952bebadb086c37d", "retained", 4,
		"the ControllerConfig no longer asks for something, and it stays"}
	Held = Kind{"07825b8a40d847289ff261ff8e79805b", "held", 4,
		"the ControllerConfig dropped a certificate or a file, and its removal waits"}
	Conflict = Kind{"635fe3086f6f4bc7aef2a192a5546396", "conflict", 4,
		"somebody else keeps changing a file; from now on it is repaired once a minute"}
	OverrideSet = Kind{"06b9ddca85f5460c8b432df180e63263", "override-set", 5,
		"an operator of this host applied content by hand, which wins over the ControllerConfig's"}
	OverrideReverted = Kind{"f4bbd47b4b194a0aa8566f49e5bd6877", "override-reverted", 5,
		"what was applied by hand is out of force: taken back, or overtaken by a change of the ControllerConfig"}
	UnitActionDispatched = Kind{"cd5bf589a3704d0186ec6be5ce1ce46b", "unit-action-dispatched", 5,
		"an allowlisted action was sent to systemd"}
	UnitActionDone = Kind{"fe8ff22396b34e88af9c8398b6d10bf9", "unit-action-done", 5,
		"the action succeeded; another follows if the files changed meanwhile"}
	UnitActionFailed = Kind{"952efd6ea2fb44aab459fcece36895a9", "unit-action-failed", 3,
		"the action did not succeed; it stays pending and is retried"}
	UnitAdopted = Kind{"5c5e6225a5bb45799460bf2bcfcd62bc", "unit-adopted", 6,
		"no action: the unit started after its files last changed"}
	UnitActionRefused = Kind{"6246ab2325b94a46b9b4b0c0fd482b8e", "unit-action-refused", 3,
		"the action would act on units that alsoAffects does not name; it is not asked for"}
	UnitActionOverdue = Kind{"2c6e803d262a4145a4626ac0d0d0b74f", "unit-action-overdue", 4,
		"the action's job has not ended in its time; systemd goes on with it, and it is not asked for again meanwhile"}
	UnitBreaker = Kind{"f6e4bd5d36df438698a879d686122283", "unit-breaker", 3,
		"the action failed again and again; it is tried rarely from now on, until the unit's files change"}
	ConsumerLive = Kind{"956a3d438c2b4d5e8c9687641cbe4221", "consumer-live", 6,
		"a consumer of a file was seen to use the bytes on disk"}
	ConsumerStale = Kind{"9a5575fcf5024d2884390196e248680a", "consumer-stale", 4,
		"a consumer of a file still does not use the bytes on disk; it has to be restarted, which the agent does not do"}
	SourceState = Kind{"09b4f47462de47039c8133b9aca239e4", "source-state", 5,
		"the state of watching the ControllerConfig changed"}
	NoMemory = Kind{"b3e31498a0dc43eb98357e48a221c5ab", "no-memory", 6,
		"there is no remembered state: this is the first start, or the state directory was emptied"}
	MemoryLost = Kind{"1ce28c3ec9ad40c78b859fd4ca2638d9", "memory-lost", 4,
		"the remembered state was unreadable and was set aside"}
	ConfigRejected = Kind{"abc9ff5be3ac401d87f605b1326f09d6", "config-rejected", 3,
		"changed configuration is invalid; the last valid settings stay in force"}
	RequestCreated = Kind{"eda016a07ad4b90fad4b92c02851c4e7", "request-created", 5,
		"a certificate was asked for: a CertificateSigningRequest was made or found again"}
	RequestDenied = Kind{"d8b3129a9d286d778929724ab0ff4f2e", "request-denied", 3,
		"a request was denied or failed, or what was issued is not what was asked for; another follows after a pause"}
	IdentityIssued = Kind{"9a154d46d11a7a3ed6c4be10ec272ee0", "identity-issued", 5,
		"a certificate was issued; it is not in use before it is proven"}
	IdentityProven = Kind{"8dfd48a6ec8c40c48a19e834da27f270", "identity-proven", 5,
		"the API server knows this node by its new certificate, which is in use from now on"}
	IdentityRenewed = Kind{"1b59adc45bc87477bbfb9ef8d45f24c5", "identity-renewed", 5,
		"the same for a certificate that replaces one that still worked"}
	IdentitySuspect = Kind{"5cce19f9ecf925f212d806c58c3e8f39", "identity-suspect", 4,
		"the API server refuses the identity; it stays in place while that is looked into"}
	IdentityLost = Kind{"f167666e7a9cece6a87fb7f3aeb8a947", "identity-lost", 4,
		"a file of the identity was unreadable or not this node's and was set aside"}
	RenewalForbidden = Kind{"5890f16dd79be873fbaa27683a559694", "renewal-forbidden", 4,
		"the API server knows the identity and would not let it ask for the next certificate: a fault of RBAC"}
	CAPinned = Kind{"b495e69f3c604ff2a37249ea3205ca43", "ca-pinned", 5,
		"a CA was found by its pinned key and verifies the API server from now on"}
	ClusterAnnounced = Kind{"915b170910374815b5b0fa4701617493", "cluster-announced", 5,
		"the ControllerConfig announces where its cluster will be; the agent goes there once it is known there"}
	CredentialRefused = Kind{"0558ce952cbb364de5d143ebc920025d", "credential-refused", 4,
		"a bootstrap credential cannot be used, or the API server does not know it; the next one is tried"}
	CredentialConsumed = Kind{"934451861430bc3f7d1e84f7f50fe57d", "credential-consumed", 5,
		"a bootstrap credential was taken out of use after the identity was proven"}
	Error = Kind{"aa95d309081c4331969198aa70807e86", "error", 3, "a reconcile could not be finished; it is retried"}
)
