package reconcile

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

const (
	// StabilizationSecondsDefault is how long the load has to fit into fewer nodes before one is removed.
	StabilizationSecondsDefault = 300
	// percentAfterRemoval bounds the load of the remaining nodes. It prevents a load that varies a little from adding the node again.
	percentAfterRemoval = 90
	// busyTolerance is the factor by which the busy ratio may exceed its target: it varies more than the number of sessions does.
	busyTolerance = 1.1
)

// ScalingInput is the input of ScaledNodes.
type ScalingInput struct {
	Spec *v1alpha1.NodeAutoscaling
	// Before is the last decided number of nodes. 0 if none was decided. FewerSince is the time since which the load fits into fewer nodes.
	Before     int32
	FewerSince *metav1.Time
	Nodes      []NodeState
	// IsChanging is true while a rollout or a drain runs.
	IsChanging bool
	Now        metav1.Time
}

// ScaledNodes returns the number of nodes for the load, and the time since which fewer nodes would be enough. The number rises at once. It falls
// by one after the load has fitted into fewer nodes for the stabilization time.
func ScaledNodes(input ScalingInput) (int32, *metav1.Time) {
	least, most := input.Spec.Min, input.Spec.Max
	if input.Before == 0 {
		return least, nil
	}
	now := min(max(input.Before, least), most)
	load := loadOf(input.Nodes)
	if needed := min(load.needed(input.Spec, now, input.IsChanging), most); needed > now {
		return needed, nil
	}
	isQuiet := load.isKnown && load.answering >= now && !input.IsChanging
	if now == least || !isQuiet || !load.fitsInto(input.Spec, now-1) {
		return now, nil
	}
	if input.FewerSince == nil {
		return now, &input.Now
	}
	seconds := int32(StabilizationSecondsDefault)
	if input.Spec.StabilizationSeconds != nil {
		seconds = *input.Spec.StabilizationSeconds
	}
	if input.Now.Unix()-input.FewerSince.Unix() < int64(seconds) {
		return now, input.FewerSince
	}
	// The next node is removed after the same time again.
	return now - 1, &input.Now
}

// load is the total load of all nodes.
type load struct {
	sessions float64
	// busy is measured in nodes: 1.5 is the capacity of one and a half nodes. Sessions stay on their node when a node is added, so busy is a
	// sum.
	busy      float64
	answering int32
	// isKnown is true if all nodes have reported all figures.
	isKnown bool
}

func loadOf(nodes []NodeState) load {
	found := load{isKnown: true}
	for index := range nodes {
		figures := nodes[index].Figures
		if figures == nil || figures.Busy == nil {
			found.isKnown = false
		}
		if figures == nil {
			continue
		}
		found.answering++
		found.sessions += float64(figures.Sessions)
		if figures.Busy != nil {
			found.busy += *figures.Busy
		}
	}
	return found
}

// needed returns the number of nodes for the load, which is at least the current number. While nodes change, sessions reconnect, which costs
// more than serving them, so the busy ratio is ignored.
func (load load) needed(spec *v1alpha1.NodeAutoscaling, now int32, isChanging bool) int32 {
	needed := now
	if each := spec.SessionsPerNode; each != nil {
		needed = max(needed, ceiling(load.sessions/float64(*each)))
	}
	if percent := spec.BusyPercent; percent != nil && !isChanging && load.busy*100 > float64(now)*float64(*percent)*busyTolerance {
		needed = max(needed, ceiling(load.busy*100/float64(*percent)))
	}
	return needed
}

// ceiling rounds up. The result is bounded, because a node may report an invalid value.
func ceiling(value float64) int32 { return int32(min(math.Ceil(value), 1<<20)) }

func (load load) fitsInto(spec *v1alpha1.NodeAutoscaling, nodes int32) bool {
	const share = percentAfterRemoval / 100.0
	if each := spec.SessionsPerNode; each != nil && load.sessions > share*float64(*each)*float64(nodes) {
		return false
	}
	percent := spec.BusyPercent
	return percent == nil || load.busy*100 <= share*float64(*percent)*float64(nodes)
}
