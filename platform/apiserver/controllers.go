package apiserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FailingWord in the command of a Job makes it fail.
const FailingWord = "must-fail"

// FinishWorkloads writes the status that the controllers of Kubernetes write when all pods are ready and all Jobs have ended.
// It returns whether anything has changed.
func FinishWorkloads(ctx context.Context, admin client.Client, options ...client.ListOption) (bool, error) {
	hasChanged := false
	for version, kinds := range map[string][]string{"apps/v1": {"Deployment", "StatefulSet"}, "batch/v1": {"Job"}} {
		for _, kind := range kinds {
			var all unstructured.UnstructuredList
			all.SetAPIVersion(version)
			all.SetKind(kind + "List")
			if err := admin.List(ctx, &all, options...); err != nil {
				return false, err
			}
			for index := range all.Items {
				object := &all.Items[index]
				if isEnded(object) {
					continue
				}
				before := object.GetResourceVersion()
				object.Object["status"] = finalStatus(object)
				if err := admin.Status().Update(ctx, object); err != nil {
					return false, fmt.Errorf("%s/%s: %w", kind, object.GetName(), err)
				}
				hasChanged = hasChanged || object.GetResourceVersion() != before
			}
		}
	}
	return hasChanged, nil
}

// isEnded reports whether a Job has ended. Its status does not change after that.
func isEnded(object *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, element := range conditions {
		condition, _ := element.(map[string]any)
		if condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed") {
			return object.GetKind() == "Job"
		}
	}
	return false
}

// UpdateRevision is the update revision of each StatefulSet. All its pods have this revision.
const UpdateRevision = "newest"

func finalStatus(object *unstructured.Unstructured) map[string]any {
	if object.GetKind() == "Job" {
		return FinalJobStatus(strings.Contains(fmt.Sprint(object.Object["spec"]), FailingWord))
	}
	replicas, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
	status := map[string]any{
		"observedGeneration": object.GetGeneration(), "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas,
		"availableReplicas": replicas,
	}
	if object.GetKind() == "StatefulSet" {
		status["updateRevision"] = UpdateRevision
	}
	return status
}

// FinalJobStatus returns a status with all fields that the API server requires of an ended Job.
func FinalJobStatus(hasFailed bool) map[string]any {
	when := metav1.Unix(1_000_000_000, 0).UTC().Format(time.RFC3339)
	status := map[string]any{"startTime": when, "completionTime": when, "succeeded": int64(1)}
	first, last := "SuccessCriteriaMet", "Complete"
	if hasFailed {
		status = map[string]any{"startTime": when, "failed": int64(1)}
		first, last = "FailureTarget", "Failed"
	}
	status["conditions"] = []any{
		map[string]any{"type": first, "status": "True", "lastTransitionTime": when},
		map[string]any{"type": last, "status": "True", "lastTransitionTime": when},
	}
	return status
}
