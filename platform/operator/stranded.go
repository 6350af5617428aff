package operator

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// giveUpStranded deletes pods without volumes that wait for a lost node. It returns whether other pods may become stranded. If the operator may not
// read nodes or delete pods, it does nothing: it was upgraded, and its new rights are not applied yet.
func (operator *Operator) giveUpStranded(ctx context.Context, subject *subject, pods []corev1.Pod) (bool, error) {
	leaving, err := operator.leavingPods(ctx, pods)
	if err != nil {
		return false, err
	}
	for _, pod := range reconcile.Stranded(leaving, metav1.NewTime(operator.now())) {
		gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: subject.object.GetNamespace(), Name: pod.Name}}
		uid := types.UID(pod.UID)
		err := operator.Writer.Delete(ctx, gone, client.GracePeriodSeconds(0), client.Preconditions{UID: &uid})
		switch {
		case apierrors.IsForbidden(err):
			return true, nil
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
			// The node is back, or Kubernetes has already deleted the pod.
			continue
		case err != nil:
			return false, fmt.Errorf("deleting pod %s of lost node %s: %w", pod.Name, pod.Node, err)
		}
		operator.record(subject, []reconcile.Event{reconcile.GivenUpEvent(pod)})
	}
	return reconcile.MayBecomeStranded(leaving), nil
}

// leavingPods returns the pods that are being deleted, with their nodes. Nodes are read only if there are such pods.
func (operator *Operator) leavingPods(ctx context.Context, pods []corev1.Pod) ([]reconcile.LeavingPod, error) {
	var leaving []reconcile.LeavingPod
	for index := range pods {
		pod := &pods[index]
		owner := metav1.GetControllerOf(pod)
		if pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" || owner == nil {
			continue
		}
		leaving = append(leaving, reconcile.LeavingPod{
			Name: pod.Name, UID: string(pod.UID), Node: pod.Spec.NodeName,
			IsOfSet: owner.Kind == "StatefulSet", HasClaims: len(volumesOfClaims(pod)) > 0,
		})
	}
	if len(leaving) == 0 {
		return nil, nil
	}
	var nodes corev1.NodeList
	if err := operator.Live.List(ctx, &nodes); err != nil {
		if apierrors.IsForbidden(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("looking for the nodes of pods that are being deleted: %w", err)
	}
	for index := range leaving {
		leaving[index].NodeState = readinessOf(nodes.Items, leaving[index].Node)
	}
	return leaving, nil
}

func readinessOf(nodes []corev1.Node, name string) *reconcile.NodeReadiness {
	for index := range nodes {
		node := &nodes[index]
		if node.Name != name {
			continue
		}
		isOff := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService })
		readiness := &reconcile.NodeReadiness{IsOutOfService: isOff}
		if since := notReadySince(node); since != nil {
			readiness.NotReadyFrom = new(metav1.NewTime(*since))
		}
		return readiness
	}
	return nil
}
