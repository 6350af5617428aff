package reconcile

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EventPodGivenUp says that a pod of a lost node was deleted without its kubelet.
const EventPodGivenUp = "PodGivenUp"

// LeavingPod is a pod whose deletion was requested. It exists until the kubelet of its node has ended it.
type LeavingPod struct {
	Name, UID, Node string
	// IsOfSet is true if a StatefulSet has created the pod: while the pod exists, no other pod starts under its name.
	IsOfSet bool
	// HasClaims is true if the pod has its own volume, so that another pod cannot serve on another node.
	HasClaims bool
	// NodeState is nil if Kubernetes does not have the node. Then Kubernetes deletes the pod by itself.
	NodeState *NodeReadiness
}

// NodeReadiness is the state of a node as the control plane reports it.
type NodeReadiness struct {
	// NotReadyFrom is nil while the node is ready.
	NotReadyFrom *metav1.Time
	// IsOutOfService is true if a taint declares that the machine is off.
	IsOutOfService bool
}

// isLost reports whether the node has not been ready for longer than nodeLostSeconds, or is not ready and has the out-of-service taint.
func (node *NodeReadiness) isLost(now metav1.Time) bool {
	if node == nil || node.NotReadyFrom == nil {
		return false
	}
	return node.IsOutOfService || now.Sub(node.NotReadyFrom.Time).Seconds() > nodeLostSeconds
}

// Stranded returns the pods that block their StatefulSet: their node is lost, so no kubelet ends them. They have no volume, so another pod of
// the same name can serve on another node. If the node comes back, its kubelet ends the old pod.
func Stranded(pods []LeavingPod, now metav1.Time) []LeavingPod {
	var found []LeavingPod
	for _, pod := range pods {
		if pod.IsOfSet && !pod.HasClaims && pod.NodeState.isLost(now) {
			found = append(found, pod)
		}
	}
	return found
}

// MayBecomeStranded reports whether a pod waits for a node that is not ready. Nodes are not watched.
func MayBecomeStranded(pods []LeavingPod) bool {
	for _, pod := range pods {
		if pod.IsOfSet && !pod.HasClaims && pod.NodeState != nil && pod.NodeState.NotReadyFrom != nil {
			return true
		}
	}
	return false
}

// GivenUpEvent returns the event that says that a pod was deleted, and why.
func GivenUpEvent(pod LeavingPod) Event {
	why := "which has not been ready since " + timeText(*pod.NodeState.NotReadyFrom)
	if pod.NodeState.IsOutOfService {
		why += ", and has the taint out-of-service"
	}
	return Event{IsWarning: true, Reason: EventPodGivenUp, Message: fmt.Sprintf(
		"%s was on node %s, %s. It has no volume, so the operator force-deleted it, and it starts on another node", pod.Name, pod.Node, why)}
}
