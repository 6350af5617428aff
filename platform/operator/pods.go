package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// failures are the waiting reasons of containers that do not resolve without a change.
var failures = []string{
	"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
	"CreateContainerError", "RunContainerError",
}

// notReady is the reason for a container that the kubelet restarts repeatedly because its health check fails. The container runs most of the time, so
// Kubernetes sets no reason.
const notReady = "NotReady"

// pods returns the pods with the labels of a subject, except those of other workloads, and the labels of those from before render.LabelKind.
func (operator *Operator) pods(ctx context.Context, subject *subject, owners podOwners) ([]corev1.Pod, []map[string]string, error) {
	var pods corev1.PodList
	if err := operator.Reader.List(ctx, &pods, operator.belongingTo(subject)...); err != nil {
		return nil, nil, err
	}
	var unlabeled []map[string]string
	for _, pod := range pods.Items {
		if pod.Labels[render.LabelKind] == "" && pod.DeletionTimestamp == nil && !owners.isOfOther(&pod) {
			unlabeled = append(unlabeled, pod.Labels)
		}
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return owners.excludes(&pod) })
	// The pods of the newest revision come first, because a rollout waits for them.
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int {
		if order := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	return pods.Items, unlabeled, nil
}

func podStates(pods []corev1.Pod, now time.Time) []reconcile.PodState {
	var states []reconcile.PodState
	for index := range pods {
		state := podState(&pods[index])
		state.NotReady = notReadyOf(&pods[index], now)
		states = append(states, state)
	}
	return states
}

// podState returns the state of a pod, with the termination message if it fails. The kubelet copies the last log lines to that message.
func podState(pod *corev1.Pod) reconcile.PodState {
	state := reconcile.PodState{Name: pod.Name, Job: pod.Labels[batchv1.JobNameLabel]}
	containers := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	if pod.Status.Phase == corev1.PodFailed {
		// The Job decides whether to retry.
		for _, container := range containers {
			if ended := container.State.Terminated; ended != nil && ended.ExitCode != 0 {
				state.LastOutput = outputOf(ended)
			}
		}
		return state
	}
	for _, container := range containers {
		if words := outputOfRestarted(&container); words != "" {
			state.Waiting, state.LastOutput = notReady, words
			return state
		}
		waiting := container.State.Waiting
		if waiting == nil || !slices.Contains(failures, waiting.Reason) {
			continue
		}
		state.Waiting, state.LastOutput = waiting.Reason, waiting.Message
		if ended := container.LastTerminationState.Terminated; ended != nil {
			state.LastOutput = outputOf(ended)
		}
		return state
	}
	for _, condition := range pod.Status.Conditions {
		isUnschedulable := condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable
		if isUnschedulable && condition.Status == corev1.ConditionFalse {
			state.Waiting, state.LastOutput = condition.Reason, condition.Message
		}
	}
	return state
}

// notReadyOf returns since when a pod is not ready. It returns nil unless the pod runs, is not being deleted, and is not ready.
func notReadyOf(pod *corev1.Pod, now time.Time) *reconcile.NotReady {
	isOfJob := pod.Labels[batchv1.JobNameLabel] != ""
	if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || isOfJob {
		return nil
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type != corev1.PodReady || condition.Status == corev1.ConditionTrue {
			continue
		}
		since := condition.LastTransitionTime.Time
		for _, container := range pod.Status.ContainerStatuses {
			// The container may have waited for its image. A container that restarts repeatedly counts as not ready for the whole time.
			if running := container.State.Running; running != nil && container.RestartCount == 0 && running.StartedAt.After(since) {
				since = running.StartedAt.Time
			}
		}
		if since.IsZero() {
			return nil
		}
		return &reconcile.NotReady{Seconds: int64(now.Sub(since) / time.Second), Since: since.UTC().Format(time.RFC3339)}
	}
	return nil
}

// outputOfRestarted returns why a container was restarted and is not ready yet, or an empty string. It ignores a container that failed by itself, for
// which Kubernetes has a reason: it may have waited for another program.
func outputOfRestarted(container *corev1.ContainerStatus) string {
	ended := container.LastTerminationState.Terminated
	isStarting := container.State.Running != nil && container.Started != nil && !*container.Started
	if ended == nil || !isStarting || !slices.Contains(exitCodesOfEnded, ended.ExitCode) {
		return ""
	}
	return outputOf(ended)
}

// exitCodesOfEnded are the exit codes of a program that the kubelet stops: it exits after SIGTERM, or is killed by SIGKILL or SIGTERM.
var exitCodesOfEnded = []int32{0, 128 + 9, 128 + 15}

func outputOf(ended *corev1.ContainerStateTerminated) string {
	words := strings.TrimSpace(ended.Message)
	switch {
	case ended.Reason == "OOMKilled":
		words = "it used more memory than resources.memory. " + words
	case slices.Contains(exitCodesOfEnded, ended.ExitCode):
		words = "it exited, or the kubelet killed it because its health check failed. " + words
	}
	return strings.TrimSpace(fmt.Sprintf("exit code %d: %s", ended.ExitCode, words))
}
