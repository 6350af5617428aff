package reconcile

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EventPodGivenUp is about a pod of a lost node that was deleted without its kubelet.
const EventPodGivenUp = "PodGivenUp"

// LeavingPod is a pod whose deletion was requested. It is there until the kubelet of its node has ended it.
type LeavingPod struct {
	Name, UID, Node string
	// IsOfSet is whether a StatefulSet has made it: no other pod starts under its name while it is there.
	IsOfSet bool
	// HasClaims is whether it has a volume of its own, so that another one cannot serve elsewhere.
	HasClaims bool
	// NodeState is nil if Kubernetes does not have the node; then it deletes the pod by itself.
	NodeState *NodeReadiness
}

// NodeReadiness is what the control plane says about a node.
type NodeReadiness struct {
	// NotReadyFrom is nil while the node is ready.
	NotReadyFrom *metav1.Time
	// IsOutOfService is whether somebody has said with a taint that the machine is off.
	IsOutOfService bool
}

// isLost is whether the node has not been ready for longer than nodeLostSeconds, or somebody has said that it is off and it is not ready.
func (node *NodeReadiness) isLost(now metav1.Time) bool {
	if node == nil || node.NotReadyFrom == nil {
		return false
	}
	return node.IsOutOfService || now.Sub(node.NotReadyFrom.Time).Seconds() > nodeLostSeconds
}

// Stranded are the pods that block their StatefulSet: their node is lost, so nobody ends them. They have no volume, so another pod of the
// same name can serve on another node. If the node comes back, its kubelet ends what it still runs.
func Stranded(pods []LeavingPod, now metav1.Time) []LeavingPod {
	var found []LeavingPod
	for _, pod := range pods {
		if pod.IsOfSet && !pod.HasClaims && pod.NodeState.isLost(now) {
			found = append(found, pod)
		}
	}
	return found
}

// MayBecomeStranded is whether a pod waits for a node that is not ready. Nodes are not watched.
func MayBecomeStranded(pods []LeavingPod) bool {
	for _, pod := range pods {
		if pod.IsOfSet && !pod.HasClaims && pod.NodeState != nil && pod.NodeState.NotReadyFrom != nil {
			return true
		}
	}
	return false
}

// GivenUpEvent says that a pod was deleted, and why.
func GivenUpEvent(pod LeavingPod) Event {
	why := "which has not been ready since " + timeText(*pod.NodeState.NotReadyFrom)
	if pod.NodeState.IsOutOfService {
		why += ", and has the taint out-of-service"
	}
	return Event{IsWarning: true, Reason: EventPodGivenUp, Message: fmt.Sprintf(
		"%s was on node %s, %s. It has no volume, so it was deleted without the node, and starts on another one", pod.Name, pod.Node, why)}
}
