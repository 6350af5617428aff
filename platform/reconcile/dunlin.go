package reconcile

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// VersionBytesMax bounds the version that a node reports.
const VersionBytesMax = 64

// countsSeconds is the shortest time between two statuses that differ only in counts. Counts change all the time.
const countsSeconds = 30

// NodeState is the state of a pod that runs a Dunlin node.
type NodeState struct {
	Name string
	// Revision is the name that Kubernetes gives to the pod's template.
	Revision string
	IsReady  bool
	// ReadyChanged is when the pod became ready, or stopped being ready. Nil until Kubernetes reports it.
	ReadyChanged *metav1.Time
	// Drained is when the deletion of the pod was requested. Nil if it was not requested.
	Drained *metav1.Time
	// Figures are nil if the node does not answer.
	Figures *NodeFigures
}

// NodeFigures are values from the metrics of a node.
type NodeFigures struct {
	Sessions, Rooms int64
	Version         string
	// Busy is the mean of the shards' busy ratios, from 0 to 1. Nil if the node does not report them.
	Busy *float64
	// IsOutOfCluster is true if the node is part of a cluster and is not ready for it.
	IsOutOfCluster bool
}

// DunlinStatus returns the status of the nodes; before is the current one. The same nodes give the same status. A change of counts alone is
// reported only when the current counts are countsSeconds old.
func DunlinStatus(before *v1alpha1.DunlinStatus, nodes []NodeState, desired int32, fewerSince *metav1.Time, now metav1.Time) *v1alpha1.DunlinStatus {
	next := &v1alpha1.DunlinStatus{NodesDesired: desired, FewerSince: fewerSince}
	if before != nil {
		next.LastDrain = before.LastDrain
	}
	for index := range nodes {
		addNode(next, &nodes[index])
	}
	if before == nil {
		next.AsOf = now
		return next
	}
	next.AsOf = before.AsOf
	isRecent := now.Sub(before.AsOf.Time).Seconds() < countsSeconds
	sameCounts := *next
	sameCounts.Sessions, sameCounts.Rooms = before.Sessions, before.Rooms
	if equality.Semantic.DeepEqual(next, before) || isRecent && equality.Semantic.DeepEqual(&sameCounts, before) {
		return before
	}
	next.AsOf = now
	return next
}

// addNode adds a node to the status. During a rollout, the versions of nodes differ. The version that sorts last wins, so the result does not
// depend on the order of the pods.
func addNode(status *v1alpha1.DunlinStatus, node *NodeState) {
	if node.IsReady {
		status.NodesReady++
	}
	if drained := node.Drained; drained != nil && (status.LastDrain == nil || status.LastDrain.Before(drained)) {
		status.LastDrain = drained
	}
	if figures := node.Figures; figures != nil {
		status.NodesAnswering++
		status.Sessions += figures.Sessions
		status.Rooms += figures.Rooms
		status.Version = max(status.Version, figures.Version)
	}
}
