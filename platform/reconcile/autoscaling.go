package reconcile

import "github.com/dunlin-project/dunlin/platform/api/v1alpha1"

const (
	// ReplicasManager owns the number of replicas between FieldManager and the autoscaler. A field without an owner gets its default: one pod.
	ReplicasManager = "roost-replicas"
	// AnnotationReplicas says that the number of replicas is the autoscaler's.
	AnnotationReplicas = v1alpha1.Group + "/replicas"

	replicasOfAutoscaler = "autoscaler"
)

// isAutoscaled is whether somebody else sets the number of replicas.
func isAutoscaled(object Manifest) bool {
	spec, _ := object["spec"].(map[string]any)
	_, has := spec["replicas"]
	return object["kind"] == "Deployment" && !has
}

// markAutoscaled shows in the live object that ReplicasManager does not have to keep the number of replicas any more.
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

// keepReplicas comes before the write that gives up the number of replicas. The autoscaler changes what is kept, and nothing sets it again.
// A workload that is stopped is not kept at 0, because an autoscaler leaves it there.
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
