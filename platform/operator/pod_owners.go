package operator

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// podOwners are the live workloads with the labels of a subject: whether each belongs to the subject. The labels of a pod are no proof that it belongs to
// the subject: an App and a Dunlin may have the same name, and anyone who may create pods may label them.
type podOwners struct {
	isOwn           map[types.UID]bool
	isOwnDeployment map[string]bool
	// selectors are those of the workloads of the subject.
	selectors []labels.Selector
}

func podOwnersOf(live map[objectName]reconcile.Manifest, subject types.UID) podOwners {
	owners := podOwners{isOwn: map[types.UID]bool{}, isOwnDeployment: map[string]bool{}}
	for name, manifest := range live {
		object := &unstructured.Unstructured{Object: manifest}
		isOwn := reconcile.IsOwnedBy(object, subject)
		owners.isOwn[object.GetUID()] = isOwn
		if name.kind == "Deployment" {
			owners.isOwnDeployment[name.name] = isOwn
		}
		selected, _, _ := unstructured.NestedStringMap(manifest, "spec", "selector", "matchLabels")
		if isOwn && len(selected) > 0 {
			owners.selectors = append(owners.selectors, labels.SelectorFromSet(selected))
		}
	}
	for _, manifest := range live {
		object := &unstructured.Unstructured{Object: manifest}
		// A scheduled Job belongs to its CronJob.
		if controller := metav1.GetControllerOf(object); controller != nil && controller.Kind == "CronJob" {
			owners.isOwn[object.GetUID()] = owners.isOwn[controller.UID]
		}
	}
	return owners
}

// excludes reports whether a pod belongs to no workload of the subject. A pod whose workload is not known is not excluded: it may outlive its Job.
func (owners podOwners) excludes(pod *corev1.Pod) bool {
	if metav1.GetControllerOf(pod) == nil {
		// A workload adopts the pod only if its selector matches: one of before render.LabelKind, or one that anybody has labeled, stays alone.
		return !slices.ContainsFunc(owners.selectors, func(selector labels.Selector) bool { return selector.Matches(labels.Set(pod.Labels)) })
	}
	return owners.isOfOther(pod)
}

// isOfOther reports whether a pod belongs to a workload of another subject.
func (owners podOwners) isOfOther(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOf(pod)
	if controller == nil {
		return false
	}
	isOwn, isKnown := owners.isOwn[controller.UID]
	if controller.Kind == "ReplicaSet" {
		// The name of a ReplicaSet is that of its Deployment with the hash of the template, which is a label of its pods as well.
		name := strings.TrimSuffix(controller.Name, "-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey])
		isOwn, isKnown = owners.isOwnDeployment[name]
	}
	return isKnown && !isOwn
}

// hasJob reports whether a Job of the subject has created a pod. Only such a pod may report the result of a backup.
func (owners podOwners) hasJob(pod *corev1.Pod) bool {
	for _, owner := range pod.OwnerReferences {
		if owner.Kind == "Job" && owners.isOwn[owner.UID] {
			return true
		}
	}
	return false
}
