package command

import (
	"cmp"
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
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
			owners, err := cluster.podOwners(ctx, []client.Object{subject}, withJobs)
			if err != nil {
				return nil, err
			}
			isOwn = map[types.UID]bool{}
			for _, pod := range pods {
				// The owner of a pod is older than the pod, so one that is not there now never will be.
				isOwn[controllerOf(&pod)] = owners[controllerOf(&pod)] != nil
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

// podOwners returns, by their UIDs, the objects that create the pods of Apps and Dunlins of one namespace, each with its App or Dunlin: StatefulSets,
// ReplicaSets of their Deployments, and Jobs. It makes one list of each kind, however many there are.
func (cluster *cluster) podOwners(ctx context.Context, subjects []client.Object, withJobs bool) (map[types.UID]client.Object, error) {
	owners, parents := map[types.UID]client.Object{}, map[types.UID]client.Object{}
	var deployments appsv1.DeploymentList
	var sets appsv1.StatefulSetList
	var replicas appsv1.ReplicaSetList
	var schedules batchv1.CronJobList
	var jobs batchv1.JobList
	lists := []client.ObjectList{&deployments, &sets, &replicas}
	if withJobs {
		lists = append(lists, &schedules, &jobs)
	}
	selected := client.MatchingLabelsSelector{Selector: labelsOfSubjects(subjects)}
	for _, list := range lists {
		if err := cluster.List(ctx, list, client.InNamespace(subjects[0].GetNamespace()), selected); err != nil {
			return nil, cluster.explained(err)
		}
	}
	owner := func(object client.Object) client.Object {
		for _, subject := range subjects {
			if reconcile.IsOwnedBy(object, subject.GetUID()) {
				return subject
			}
		}
		return nil
	}
	for index := range deployments.Items {
		parents[deployments.Items[index].UID] = owner(&deployments.Items[index])
	}
	for index := range schedules.Items {
		parents[schedules.Items[index].UID] = owner(&schedules.Items[index])
	}
	for index := range sets.Items {
		owners[sets.Items[index].UID] = owner(&sets.Items[index])
	}
	for index := range replicas.Items {
		owners[replicas.Items[index].UID] = parents[controllerOf(&replicas.Items[index])]
	}
	for index := range jobs.Items {
		job := &jobs.Items[index]
		owners[job.UID] = cmp.Or(parents[controllerOf(job)], owner(job), runOf(job, subjects))
	}
	return owners, nil
}

// labelsOfSubjects selects what has the label of one of the Apps and Dunlins.
func labelsOfSubjects(subjects []client.Object) labels.Selector {
	names := make([]string, 0, len(subjects))
	for _, subject := range subjects {
		names = append(names, subject.GetName())
	}
	if len(names) == 1 {
		return labels.SelectorFromSet(labels.Set{render.LabelApp: names[0]})
	}
	// The names of all subjects of a namespace may be too long for an address.
	isOfAny, err := labels.NewRequirement(render.LabelApp, selection.Exists, nil)
	if err != nil {
		panic(err)
	}
	return labels.NewSelector().Add(*isOfAny)
}

// runOf returns the App or Dunlin of a Job of `roost run`, or nil. The App owns the Job and does not control it.
func runOf(job *batchv1.Job, subjects []client.Object) client.Object {
	for _, subject := range subjects {
		if slices.ContainsFunc(job.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == subject.GetUID() }) {
			return subject
		}
	}
	return nil
}
