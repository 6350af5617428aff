package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// failures are reasons of Kubernetes for which a container waits that do not pass by themselves.
var failures = []string{
	"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
	"CreateContainerError", "RunContainerError",
}

func (operator *Operator) pods(ctx context.Context, subject *subject) ([]reconcile.PodState, error) {
	var pods corev1.PodList
	selector := client.MatchingLabels{render.LabelApp: subject.object.GetName(), render.LabelManagedBy: render.ManagedBy}
	if err := operator.Reader.List(ctx, &pods, client.InNamespace(subject.object.GetNamespace()), selector); err != nil {
		return nil, err
	}
	// Those of the newest revision first, because they are what a rollout waits for.
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int {
		if order := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	var states []reconcile.PodState
	for index := range pods.Items {
		states = append(states, podState(&pods.Items[index]))
	}
	return states, nil
}

// podState has the last words of a pod that fails. The kubelet puts the end of the log there.
func podState(pod *corev1.Pod) reconcile.PodState {
	state := reconcile.PodState{Name: pod.Name}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting := container.State.Waiting
		if waiting == nil || !slices.Contains(failures, waiting.Reason) {
			continue
		}
		state.Waiting, state.LastWords = waiting.Reason, waiting.Message
		if ended := container.LastTerminationState.Terminated; ended != nil {
			state.LastWords = fmt.Sprintf("exit code %d: %s", ended.ExitCode, ended.Message)
		}
		return state
	}
	for _, condition := range pod.Status.Conditions {
		isUnschedulable := condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable
		if isUnschedulable && condition.Status == corev1.ConditionFalse {
			state.Waiting, state.LastWords = condition.Reason, condition.Message
		}
	}
	return state
}
