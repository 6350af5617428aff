package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FailingWord in the command of a Job makes it fail.
const FailingWord = "must-fail"

// workloads are empty lists of the kinds whose status FinishWorkloads and KeepFinished write.
func workloads() []*unstructured.UnstructuredList {
	var lists []*unstructured.UnstructuredList
	for _, kind := range [][2]string{{"apps/v1", "DeploymentList"}, {"apps/v1", "StatefulSetList"}, {"batch/v1", "JobList"}} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind[0])
		list.SetKind(kind[1])
		lists = append(lists, list)
	}
	return lists
}

// FinishWorkloads writes the status that the controllers of Kubernetes write when all pods are ready and all Jobs have ended.
// It returns whether anything has changed.
func FinishWorkloads(ctx context.Context, admin client.Client, options ...client.ListOption) (bool, error) {
	hasChanged := false
	for _, all := range workloads() {
		if err := admin.List(ctx, all, options...); err != nil {
			return false, err
		}
		for index := range all.Items {
			hasWritten, err := finish(ctx, admin, &all.Items[index])
			if err != nil {
				return false, err
			}
			hasChanged = hasChanged || hasWritten
		}
	}
	return hasChanged, nil
}

// KeepFinished does what FinishWorkloads does, now and after each change, until the context ends. It watches, because a test that looks again and
// again has the server do nothing else.
func KeepFinished(ctx context.Context, admin client.WithWatch, options ...client.ListOption) error {
	failures := make(chan error)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lists := workloads()
	for _, list := range lists {
		go func() {
			failures <- Each(ctx, admin, list, func(object client.Object) error {
				_, err := finish(ctx, admin, object.(*unstructured.Unstructured))
				return err
			}, options...)
		}()
	}
	var first error
	for range lists {
		if err := <-failures; first == nil && err != nil {
			first = err
			cancel()
		}
	}
	return first
}

// Each calls a function with each object of a kind, and again after each of its changes, until the context ends, the function fails, or the watch does. A
// conflict is no failure: the change that caused it follows. When the server ends a watch, as it does after a time, another one begins.
func Each(ctx context.Context, admin client.WithWatch, list client.ObjectList, do func(client.Object) error, options ...client.ListOption) error {
	for {
		// The first changes are the objects that exist.
		changes, err := admin.Watch(ctx, list, options...)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		seen, err := eachChange(changes, do)
		changes.Stop()
		if err == nil && seen == 0 {
			// A server that ends each watch at once would be asked without a pause.
			err = errors.New("the server has ended a watch without a change")
		}
		if err != nil || ctx.Err() != nil {
			return ignoreEnd(ctx, err)
		}
	}
}

// eachChange returns the number of changes when the watch ends.
func eachChange(changes watch.Interface, do func(client.Object) error) (int, error) {
	seen := 0
	for change := range changes.ResultChan() {
		seen++
		switch change.Type {
		case watch.Error:
			return seen, fmt.Errorf("the watch has failed: %w", apierrors.FromObject(change.Object))
		case watch.Added, watch.Modified:
			err := do(change.Object.(client.Object))
			if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				return seen, err
			}
		}
	}
	return seen, nil
}

// ignoreEnd ignores the error of a call that the end of its context has caused.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// finish returns whether it has changed the object.
func finish(ctx context.Context, admin client.Client, object *unstructured.Unstructured) (bool, error) {
	final := finalStatus(object)
	if isEnded(object) || isStatus(object, final) {
		return false, nil
	}
	before := object.GetResourceVersion()
	object.Object["status"] = final
	if err := admin.Status().Update(ctx, object); err != nil {
		return false, fmt.Errorf("%s/%s: %w", object.GetKind(), object.GetName(), err)
	}
	return object.GetResourceVersion() != before, nil
}

// isStatus reports whether an object has a status. The server leaves out some of the numbers that are 0.
func isStatus(object *unstructured.Unstructured, status map[string]any) bool {
	current, _, _ := unstructured.NestedMap(object.Object, "status")
	return reflect.DeepEqual(withoutZeros(current), withoutZeros(status))
}

func withoutZeros(status map[string]any) map[string]any {
	found := maps.Clone(status)
	maps.DeleteFunc(found, func(_ string, value any) bool { return value == int64(0) })
	if len(found) == 0 {
		return nil
	}
	return found
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
