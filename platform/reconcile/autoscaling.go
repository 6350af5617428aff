package reconcile

import "github.com/dunlin-project/dunlin/platform/api/v1alpha1"

const (
	// ReplicasManager owns the number of replicas between FieldManager and the autoscaler. Without an owner, the API server resets the field to
	// its default, one pod.
	ReplicasManager = "roost-replicas"
	// AnnotationReplicas marks a workload whose number of replicas the autoscaler sets.
	AnnotationReplicas = v1alpha1.Group + "/replicas"

	replicasOfAutoscaler = "autoscaler"
)

// isAutoscaled reports whether an autoscaler sets the number of replicas.
func isAutoscaled(object Manifest) bool {
	spec, _ := object["spec"].(map[string]any)
	_, has := spec["replicas"]
	return object["kind"] == "Deployment" && !has
}

// markAutoscaled sets AnnotationReplicas, so that the live object shows that ReplicasManager no longer has to keep the number of replicas.
func markAutoscaled(object Manifest) Manifest {
	if !isAutoscaled(object) {
		return object
	}
	marked := clone(object)
	metadata := marked["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[AnnotationReplicas] = replicasOfAutoscaler
	return marked
}

// keepReplicas adds a write that keeps the live number of replicas. It precedes the write that gives up that field. The autoscaler changes the
// kept value, and Roost never sets it again. A stopped workload is not kept at 0, because an autoscaler does not scale up from 0.
func (decision *decision) keepReplicas(current, desired Manifest) {
	replicas := number(current, "spec", "replicas")
	if !isAutoscaled(desired) || annotation(current, AnnotationReplicas) == replicasOfAutoscaler || replicas == 0 {
		return
	}
	decision.writes = append(decision.writes, Write{Kind: WriteKeepReplicas, Object: Manifest{
		"apiVersion": current["apiVersion"], "kind": current["kind"],
		"metadata": map[string]any{"name": metadataText(current, "name")},
		"spec":     map[string]any{"replicas": replicas},
	}})
}
