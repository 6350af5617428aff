package operator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dunlin-project/dunlin/platform/reconcile"
)

func ended(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
}

// The states are those that a kubelet of Kubernetes 1.36 writes.
func TestWhatAPodSaysLast(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	const inTime = "it exited, or the kubelet killed it because its health check failed."
	for _, row := range []struct {
		name          string
		phase         corev1.PodPhase
		container     corev1.ContainerStatus
		reason, words string
	}{
		{"it serves", corev1.PodRunning, corev1.ContainerStatus{State: running, Started: new(true), LastTerminationState: ended(137, "Error", "")}, "", ""},
		{"it starts", corev1.PodRunning, corev1.ContainerStatus{State: running, Started: new(false)}, "", ""},
		{"it has failed once, and starts again", corev1.PodRunning,
			corev1.ContainerStatus{State: running, Started: new(false), LastTerminationState: ended(1, "Error", "no database\n")}, "", ""},
		{"it fails again and again", corev1.PodRunning,
			corev1.ContainerStatus{State: waiting("CrashLoopBackOff", "back-off 10s"), LastTerminationState: ended(1, "Error", "no database\n")},
			"CrashLoopBackOff", "exit code 1: no database"},
		{"its health check fails, and it ends by itself", corev1.PodRunning,
			corev1.ContainerStatus{State: running, Started: new(false), LastTerminationState: ended(0, "Completed", "")}, "NotReady", "exit code 0: " + inTime},
		{"its health check fails, and it is killed", corev1.PodRunning,
			corev1.ContainerStatus{State: running, Started: new(false), LastTerminationState: ended(137, "Error", "waiting for a leader")},
			"NotReady", "exit code 137: " + inTime + " waiting for a leader"},
		{"too much memory", corev1.PodRunning,
			corev1.ContainerStatus{State: waiting("CrashLoopBackOff", ""), LastTerminationState: ended(137, "OOMKilled", "")},
			"CrashLoopBackOff", "exit code 137: it used more memory than resources.memory."},
		{"no image", corev1.PodPending, corev1.ContainerStatus{State: waiting("ErrImagePull", "not found")}, "ErrImagePull", "not found"},
		{"it is being created", corev1.PodPending, corev1.ContainerStatus{State: waiting("ContainerCreating", "")}, "", ""},
		{"a Job that may try again", corev1.PodFailed, corev1.ContainerStatus{State: ended(1, "Error", "no column\n")}, "", "exit code 1: no column"},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: row.phase, ContainerStatuses: []corev1.ContainerStatus{row.container}}}
		if found := podState(pod); found != (reconcile.PodState{Waiting: row.reason, LastOutput: row.words}) {
			t.Errorf("%s: %+v", row.name, found)
		}
	}
}

// The cache drops the fields of a pod that the operator does not read. It keeps the claims, which lead to the node.
func TestTheCacheKeepsTheClaimsOfPods(t *testing.T) {
	claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-shop-0"}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "m1", Volumes: []corev1.Volume{
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}},
	}}}
	kept, err := withoutPodSpec(pod)
	if err != nil {
		t.Fatal(err)
	}
	volumes := kept.(*corev1.Pod).Spec.Volumes
	if len(volumes) != 1 || volumes[0].PersistentVolumeClaim.ClaimName != "data-shop-0" || pod.Spec.NodeName != "" {
		t.Errorf("%+v", pod.Spec)
	}
}
