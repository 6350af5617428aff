package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// PodPatch changes what no other field of the spec can.
type PodPatch struct {
	// Template is a strategic merge patch of the pod template, with `metadata` and `spec`. It is applied last, to the pods of all processes, and not to
	// Jobs. The container of the app is called `app`. What belongs to Roost, and what opens Secrets and volumes of others, is refused.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Template *runtime.RawExtension `json:"template"`
	// Relaxed allows in Template what Roost's security settings forbid, such as `securityContext` and `hostPath`. The namespace has to admit such pods as well.
	// +optional
	Relaxed bool `json:"relaxed,omitempty"`
}
