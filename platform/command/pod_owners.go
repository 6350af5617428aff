package command

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// podFilter keeps those of the selected pods that belong to what the user has named. Labels are no proof: whoever may create pods may label them.
type podFilter func(ctx context.Context, pods []corev1.Pod) ([]corev1.Pod, error)

// ofJob keeps the pods of a Job.
func ofJob(job types.UID) podFilter {
	return func(_ context.Context, pods []corev1.Pod) ([]corev1.Pod, error) {
		return slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return controllerOf(&pod) != job }), nil
	}
}

// ofSubject keeps the pods of the workloads of an App or a Dunlin, and of its Jobs. It reads these only if it does not know the owner of a pod, because
// a log that is followed asks every second.
func (cluster *cluster) ofSubject(subject client.Object, withJobs bool) podFilter {
	isOwn := map[types.UID]bool{}
	return func(ctx context.Context, pods []corev1.Pod) ([]corev1.Pod, error) {
		isUnknown := slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
			controller := controllerOf(&pod)
			_, isKnown := isOwn[controller]
			return controller != "" && !isKnown
		})
		if isUnknown {
			owners, err := cluster.podOwners(ctx, subject, withJobs)
			if err != nil {
				return nil, err
			}
			isOwn = map[types.UID]bool{}
			for _, pod := range pods {
				// The owner of a pod is older than the pod, so one that is not there now never will be.
				isOwn[controllerOf(&pod)] = owners[controllerOf(&pod)]
			}
		}
		return slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !isOwn[controllerOf(&pod)] }), nil
	}
}

// controllerOf returns the UID of the owner that controls an object, or "".
func controllerOf(object metav1.Object) types.UID {
	if controller := metav1.GetControllerOf(object); controller != nil {
		return controller.UID
	}
	return ""
}

// podOwners returns the UIDs of the objects that create the pods of an App or a Dunlin: StatefulSets, ReplicaSets of its Deployments, and Jobs.
func (cluster *cluster) podOwners(ctx context.Context, subject client.Object, withJobs bool) (map[types.UID]bool, error) {
	owners, parents := map[types.UID]bool{}, map[types.UID]bool{}
	selected := []client.ListOption{client.InNamespace(subject.GetNamespace()), client.MatchingLabels{render.LabelApp: subject.GetName()}}
	var deployments appsv1.DeploymentList
	var sets appsv1.StatefulSetList
	var replicas appsv1.ReplicaSetList
	var schedules batchv1.CronJobList
	var jobs batchv1.JobList
	lists := []client.ObjectList{&deployments, &sets, &replicas}
	if withJobs {
		lists = append(lists, &schedules, &jobs)
	}
	for _, list := range lists {
		if err := cluster.List(ctx, list, selected...); err != nil {
			return nil, cluster.explained(err)
		}
	}
	for index := range deployments.Items {
		parents[deployments.Items[index].UID] = reconcile.IsOwnedBy(&deployments.Items[index], subject.GetUID())
	}
	for index := range schedules.Items {
		parents[schedules.Items[index].UID] = reconcile.IsOwnedBy(&schedules.Items[index], subject.GetUID())
	}
	for index := range sets.Items {
		owners[sets.Items[index].UID] = reconcile.IsOwnedBy(&sets.Items[index], subject.GetUID())
	}
	for index := range replicas.Items {
		owners[replicas.Items[index].UID] = parents[controllerOf(&replicas.Items[index])]
	}
	for index := range jobs.Items {
		job := &jobs.Items[index]
		owners[job.UID] = parents[controllerOf(job)] || reconcile.IsOwnedBy(job, subject.GetUID()) || isRunOf(job, subject.GetUID())
	}
	return owners, nil
}

// isRunOf reports whether a Job is one of `roost run`. The App owns it and does not control it.
func isRunOf(job *batchv1.Job, subject types.UID) bool {
	return slices.ContainsFunc(job.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == subject })
}
