package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Dunlin is a cluster of nodes of the realtime server, and its NATS servers where asked for.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.dunlin.nodesDesired`
// +kubebuilder:printcolumn:name="Serving",type=integer,JSONPath=`.status.dunlin.nodesReady`
// +kubebuilder:printcolumn:name="Sessions",type=integer,JSONPath=`.status.dunlin.sessions`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.dunlin.version`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 30",messageExpression="'\"' + self.metadata.name + '\" has more than 30 characters; use at most 30, because names of jobs are made from it'"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",messageExpression="'\"' + self.metadata.name + '\" is not the name of a Service; use a-z, 0-9 and -, and begin with a letter'"
type Dunlin struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec DunlinSpec `json:"spec"`
	// +optional
	Status Status `json:"status,omitzero"`
}

// DunlinList is a list of Dunlin.
//
// +kubebuilder:object:root=true
type DunlinList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Dunlin `json:"items"`
}

// DunlinSpec is what a team writes. Everything but the image and the keys has a default.
//
// +kubebuilder:validation:XValidation:rule="!has(self.nodes) || self.nodes < 2 || has(self.nats)",message="nodes share no channels without NATS; set spec.nats, or 1 node",fieldPath=".nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.nodes) || !has(self.autoscaling)",message="nodes and autoscaling are mutually exclusive; remove one of them",fieldPath=".nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.autoscaling) || has(self.nats)",message="nodes share no channels without NATS; set spec.nats, or remove the autoscaling",fieldPath=".autoscaling"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || !has(self.nats)",message="storage on disk is for a single node without NATS; remove spec.storage or spec.nats",fieldPath=".storage"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || has(self.storage) || (has(self.nats) && has(self.nats.servers))",message="there is neither a storage on disk nor a NATS server of its own to back up; set spec.storage or spec.nats.servers, or remove the backup",fieldPath=".backup"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || (has(self.backup.repository) && !(has(self.backup.command) && self.backup.command.size() > 0))",message="a Dunlin needs no command for its backup, and it is saved to a repository; set repository and no command",fieldPath=".backup"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || !has(self.backup.repository) || !has(self.keys.file) || self.backup.repository.file != self.keys.file",message="is in spec.keys.file as well, so the app would get the keys of its backups; write another file",fieldPath=".backup.repository.file"
// +kubebuilder:validation:XValidation:rule="!has(self.onNodeLoss) || self.onNodeLoss != 'RestoreFromBackup' || has(self.storage)",message="only the volume of spec.storage is restored, and there is none; set Wait (roost replace-nats is for a NATS server that is lost)",fieldPath=".onNodeLoss"
// +kubebuilder:validation:XValidation:rule="!has(self.onNodeLoss) || self.onNodeLoss != 'RestoreFromBackup' || !has(self.storage) || (has(self.backup) && has(self.backup.repository) && !(has(self.backup.command) && self.backup.command.size() > 0))",message="a restore needs a backup of the volumes; set spec.backup.repository and no spec.backup.command, or set Wait",fieldPath=".onNodeLoss"
type DunlinSpec struct {
	// Image with a tag other than latest, or with a digest.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?/)?[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$')",messageExpression="'\"' + self + '\" is not the name of an image; write registry/name:tag or registry/name@sha256:digest'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([a-z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?/)?[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*$')",messageExpression="'\"' + self + '\" has no tag and no digest, which means the tag latest; name a version or a digest'"
	// +kubebuilder:validation:XValidation:rule="!self.endsWith(':latest')",messageExpression="'\"' + self + '\" has the tag latest, which changes without a release; name a version or a digest'"
	Image string `json:"image"`
	// PullSecret names a Secret with the credentials of the registry.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="'\"' + self + '\" is not the name of a Secret; use a-z, 0-9, - and .'"
	PullSecret string `json:"pullSecret,omitempty"`
	// Nodes of the cluster. 1 without it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 32",message="is out of range; set 1 to 32"
	Nodes *int32 `json:"nodes,omitempty"`
	// Autoscaling sets the number of nodes by their sessions and their load.
	// +optional
	Autoscaling *NodeAutoscaling `json:"autoscaling,omitempty"`
	Hosting     `json:",inline"`
	// Keys name the Secret with the server's keys.
	Keys Keys `json:"keys"`
	// Config has further keys of the server's configuration, as in config.json. Roost sets the ports, the health check,
	// the metrics, the shutdown, the broker and the storage itself, and refuses them here.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Config *runtime.RawExtension `json:"config,omitempty"`
	// DrainSeconds from the deletion of a pod to the end of its process. The times of `shutdown`, the pause before
	// SIGTERM and the grace period of the pod follow from it. 60 without it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 10 && self <= 3600",message="is out of range; set 10 to 3600"
	DrainSeconds *int32 `json:"drainSeconds,omitempty"`
	// ReconnectsPerSecond is how many sessions a node that drains closes in a second, so that the other nodes are not asked by
	// all of them at once. Without it, all sessions are closed within half of the time that the drain has for them. Those that are left after three quarters of that time are closed at once.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 1000000",message="is out of range; set 1 to 1000000"
	ReconnectsPerSecond *int32 `json:"reconnectsPerSecond,omitempty"`
	// ReturnSeconds that sessions have to come back after a node was replaced. A rollout waits until 98 % of those from before are connected,
	// and goes on after this time nevertheless. 120 without it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 3600",message="is out of range; set 0 to 3600"
	ReturnSeconds *int32 `json:"returnSeconds,omitempty"`
	// TrustedProxies are the addresses of the ingress controller's pods, whose X-Forwarded-For counts.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	TrustedProxies []AddressRange `json:"trustedProxies,omitempty"`
	// Resources of each node.
	// +optional
	Resources Resources `json:"resources,omitzero"`
	// NATS joins the nodes to a cluster.
	// +optional
	NATS *NATS `json:"nats,omitempty"`
	// DeletionPolicy says what becomes of the objects that the spec renders to when the Dunlin is deleted. Delete: Kubernetes deletes them.
	// Orphan: they stay and serve on, also when Roost itself is removed. Persistent volume claims stay in either case. Delete without it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self in ['Delete', 'Orphan']",messageExpression="'\"' + self + '\" is not a policy; set Delete or Orphan'"
	DeletionPolicy string `json:"deletionPolicy,omitempty"`
	// Storage is a persistent volume for the log of a node on its own.
	// +optional
	Storage *Storage `json:"storage,omitempty"`
	// Backup saves the backups that the node makes of its storage while it serves, and verifies that they can be restored.
	// +optional
	Backup *Backup `json:"backup,omitempty"`
	// OnNodeLoss says what happens when the node of the cluster with the volume of Storage is lost. Wait: the server waits for it.
	// RestoreFromBackup: the last verified snapshot is restored into a new volume on another one, where the server starts; what was written
	// after the newest backup in it is lost. Wait without it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self in ['Wait', 'RestoreFromBackup']",messageExpression="'\"' + self + '\" is not a policy; set Wait or RestoreFromBackup'"
	OnNodeLoss string `json:"onNodeLoss,omitempty"`
	// Network lists who may reach the internal port with the server API and the metrics, and whom nodes may reach.
	// +optional
	Network Network `json:"network,omitzero"`
}

// NodeAutoscaling of a Dunlin between two numbers of nodes. Nodes are added at once, and removed one by one.
//
// +kubebuilder:validation:XValidation:rule="self.min >= 1 && self.max <= 32 && self.min <= self.max",message="is not valid; set min and max, with 1 <= min <= max <= 32"
// +kubebuilder:validation:XValidation:rule="has(self.sessionsPerNode) || has(self.busyPercent)",message="no target for the load is set; set sessionsPerNode, such as 20000, or busyPercent"
type NodeAutoscaling struct {
	// Min is the smallest number of nodes.
	Min int32 `json:"min"`
	// Max is the largest number of nodes.
	Max int32 `json:"max"`
	// SessionsPerNode that a node is to have at most.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 10000000",message="is out of range; set 1 to 10000000"
	SessionsPerNode *int32 `json:"sessionsPerNode,omitempty"`
	// BusyPercent of the time that shards are to be busy at most, as a mean of all shards (`dunlin_shard_busy_ratio`).
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 100",message="is out of range; set 1 to 100"
	BusyPercent *int32 `json:"busyPercent,omitempty"`
	// StabilizationSeconds that the load has to fit into fewer nodes before one is removed. 300 without it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 86400",message="is out of range; set 0 to 86400"
	StabilizationSeconds *int32 `json:"stabilizationSeconds,omitempty"`
}

// DunlinStatus is what the nodes say of themselves. Counts are written at most every 30 seconds.
type DunlinStatus struct {
	// NodesReady is the number of pods that are ready.
	NodesReady int32 `json:"nodesReady"`
	// NodesDesired is the number of nodes of the spec. With autoscaling, it is what was decided.
	NodesDesired int32 `json:"nodesDesired"`
	// NodesAnswering are those whose metrics can be read. The counts are theirs.
	NodesAnswering int32 `json:"nodesAnswering"`
	// Sessions that are connected.
	Sessions int64 `json:"sessions"`
	// Rooms that are open.
	Rooms int64 `json:"rooms"`
	// Version of the server.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
	// LastDrain is when the drain of a node last began.
	// +optional
	LastDrain *metav1.Time `json:"lastDrain,omitempty"`
	// FewerSince is since when the load fits into fewer nodes.
	// +optional
	FewerSince *metav1.Time `json:"fewerSince,omitempty"`
	// AsOf is when this was last written.
	AsOf metav1.Time `json:"asOf"`
}

// AddressRange such as 10.42.0.0/16.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",messageExpression="'\"' + self + '\" is not a range of addresses; write one such as 10.0.0.0/8'"
type AddressRange string

// Keys of the server: api_key, token_hmac_secret_key unless `config` has a public key, and nats_password if there are NATS servers, which also
// accept nats_previous_password.
//
// +kubebuilder:validation:XValidation:rule="has(self.secret) != has(self.file)",message="the keys are either in a Secret or in an encrypted file; set one of secret and file"
type Keys struct {
	// Secret that others have made, with the label apps.roost.dev/usable=true. It is mounted. Roost checks its
	// content and restarts the nodes when it changes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="'\"' + self + '\" is not the name of a Secret; use a-z, 0-9, - and .'"
	Secret string `json:"secret,omitempty"`
	// File is an encrypted .env file beside the manifest, from which Roost makes the Secret.
	// +optional
	File FileName `json:"file,omitempty"`
}

// NATS servers: the ones that Roost runs, or others by their addresses.
//
// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.servers)",message="NATS servers are either run here or elsewhere; set one of servers and url"
// +kubebuilder:validation:XValidation:rule="!has(self.servers) || has(self.image)",message="the servers need an image; set one such as nats:2.15.2",fieldPath=".image"
type NATS struct {
	// Servers that Roost runs: 1, 3 or 5.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self in [1, 3, 5]",message="is not a supported number of servers; set 1, 3 or 5"
	Servers *int32 `json:"servers,omitempty"`
	// Image of the NATS server, 2.11 or newer.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?/)?[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$')",messageExpression="'\"' + self + '\" is not the name of an image; write registry/name:tag or registry/name@sha256:digest'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([a-z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?/)?[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*$')",messageExpression="'\"' + self + '\" has no tag and no digest, which means the tag latest; name a version or a digest'"
	// +kubebuilder:validation:XValidation:rule="!self.endsWith(':latest')",messageExpression="'\"' + self + '\" has the tag latest, which changes without a release; name a version or a digest'"
	Image string `json:"image,omitempty"`
	// Size of the volume of each server. 10Gi without it.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// StorageClass of the volumes. The cluster's default without it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="'\"' + self + '\" is not the name of a StorageClass; use a-z, 0-9, - and .'"
	StorageClass string `json:"storageClass,omitempty"`
	// Resources of each server.
	// +optional
	Resources Resources `json:"resources,omitzero"`
	// URL of other servers: addresses with commas between them. `$(NATS_PASSWORD)` stands for nats_password of Keys.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^(nats|tls)://[^/ ,]+(,(nats|tls)://[^/ ,]+)*$')",message="an address does not begin with nats:// or tls://; write addresses such as nats://10.0.0.1:4222, with commas between them"
	URL string `json:"url,omitempty"`
	// Prefix of the names of all subjects and streams. The name of the Dunlin without it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]+$')",messageExpression="'\"' + self + '\" is not a prefix; use A-Z, a-z, 0-9, - and _'"
	Prefix string `json:"prefix,omitempty"`
}

// Storage of a node.
type Storage struct {
	// Size of the volume.
	Size resource.Quantity `json:"size"`
	// StorageClass of the volume. The cluster's default without it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="'\"' + self + '\" is not the name of a StorageClass; use a-z, 0-9, - and .'"
	StorageClass string `json:"storageClass,omitempty"`
}
