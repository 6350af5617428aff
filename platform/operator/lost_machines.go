package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// localVolumes returns the volumes of pods that do not run and may wait for a node. They are read only if there are such pods. If the operator may not
// read them, the result is empty: the operator was upgraded, and its new rights are not applied yet.
func (operator *Operator) localVolumes(ctx context.Context, pods []corev1.Pod) ([]reconcile.LocalVolume, error) {
	var found []reconcile.LocalVolume
	for index := range pods {
		pod := &pods[index]
		if !mayWaitForNode(pod) {
			continue
		}
		for _, volume := range volumesOfClaims(pod) {
			local, err := operator.localVolume(ctx, pod, volume.PersistentVolumeClaim.ClaimName)
			if apierrors.IsForbidden(err) {
				return nil, nil
			}
			if err != nil {
				return nil, fmt.Errorf("looking for the node of pod %s: %w", pod.Name, err)
			}
			if local != nil {
				found = append(found, *local)
			}
		}
	}
	return found, nil
}

// present returns the volumes that the app or the current operation uses. Pods with earlier volumes exist until the lost node is back or deleted.
func (subject *subject) present(volumes []reconcile.LocalVolume) []reconcile.LocalVolume {
	name, status := subject.object.GetName(), subject.status.Backup
	first, part, job := "-"+render.FirstPod(name, status), "-"+render.WorkloadName(name, status)+"-", ""
	if status != nil && !status.Operation.IsEnded() {
		job = render.OperationName(name, status.Operation)
	}
	hasMoved := status != nil && status.VolumeGeneration > 0
	return slices.DeleteFunc(volumes, func(volume reconcile.LocalVolume) bool {
		if volume.Job != "" {
			return volume.Job != job && !strings.HasSuffix(volume.Claim, first)
		}
		return hasMoved && !strings.HasPrefix(volume.Pod, render.NATSName(name)+"-") && !strings.Contains(volume.Claim, part)
	})
}

// mayWaitForNode reports whether a pod is unschedulable, or runs and is not ready. The pod of a node that is cut off keeps its phase, and the control
// plane marks it as not ready.
func mayWaitForNode(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Status != corev1.ConditionFalse {
			continue
		}
		isUnschedulable := condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable
		if isUnschedulable || condition.Type == corev1.PodReady && pod.Status.Phase == corev1.PodRunning {
			return true
		}
	}
	return false
}

func volumesOfClaims(pod *corev1.Pod) []corev1.Volume {
	var found []corev1.Volume
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			found = append(found, volume)
		}
	}
	return found
}

// localVolume returns the volume of a claim. It returns nil if the claim is not bound, or if the volume is not local to one node.
func (operator *Operator) localVolume(ctx context.Context, pod *corev1.Pod, claimName string) (*reconcile.LocalVolume, error) {
	var claim corev1.PersistentVolumeClaim
	err := operator.Live.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: claimName}, &claim)
	if err != nil || claim.Spec.VolumeName == "" {
		return nil, client.IgnoreNotFound(err)
	}
	var volume corev1.PersistentVolume
	if err := operator.Live.Get(ctx, types.NamespacedName{Name: claim.Spec.VolumeName}, &volume); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	host := render.HostOfVolume(&volume)
	if host == "" {
		return nil, nil
	}
	found := &reconcile.LocalVolume{Pod: pod.Name, Job: pod.Labels[batchv1.JobNameLabel], Claim: claimName, Volume: volume.Name, Node: host}
	var nodes corev1.NodeList
	if err := operator.Live.List(ctx, &nodes, client.MatchingLabels{corev1.LabelHostname: host}); err != nil {
		return nil, err
	}
	if len(nodes.Items) > 0 {
		// The name and the host name of a node may differ.
		found.Node, found.IsNodeThere = nodes.Items[0].Name, true
		if since := notReadySince(&nodes.Items[0]); since != nil {
			found.NotReadySeconds = new(int64(operator.now().Sub(*since) / time.Second))
			found.NotReadyFrom = new(metav1.NewTime(*since))
			found.NotReadySince = since.UTC().Format(time.RFC3339)
		}
	}
	return found, nil
}

// notReadySince returns when a node became not ready. It returns nil for a node that is ready or has no Ready condition.
func notReadySince(node *corev1.Node) *time.Time {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return &condition.LastTransitionTime.Time
		}
	}
	return nil
}
