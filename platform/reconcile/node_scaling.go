package reconcile

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

const (
	// StabilizationSecondsDefault is how long the load has to fit into fewer nodes before one goes.
	StabilizationSecondsDefault = 300
	// percentAfterRemoval bounds the load of the nodes that would be left. It keeps a load that varies a little from adding the node again.
	percentAfterRemoval = 90
	// busyTolerance is what the busy ratio may exceed its target by: it varies more than sessions do.
	busyTolerance = 1.1
)

// ScalingInput is what the number of nodes depends on.
type ScalingInput struct {
	Spec *v1alpha1.NodeAutoscaling
	// Before is the number of nodes that was decided last, and FewerSince since when the load fits into fewer. 0: nothing was decided.
	Before     int32
	FewerSince *metav1.Time
	Nodes      []NodeState
	// IsChanging is whether a rollout or the end of a node is under way.
	IsChanging bool
	Now        metav1.Time
}

// ScaledNodes is the number of nodes for the load, and since when fewer would do. It rises at once, and falls by one after the load has fitted
// into fewer nodes for the stabilization time.
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
	// The next one goes after the same time again.
	return now - 1, &input.Now
}

// load of all nodes together.
type load struct {
	sessions float64
	// busy is in nodes: 1.5 is as much as one node and a half can do. Sessions stay where they are when a node is added, so it is a sum.
	busy      float64
	answering int32
	// isKnown is whether all nodes have answered completely.
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

// needed is the number of nodes for the load, at least the present one. While nodes change, sessions connect anew, which takes more than it
// takes to serve them.
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

// ceiling is bounded, because a node may tell nonsense.
func ceiling(value float64) int32 { return int32(min(math.Ceil(value), 1<<20)) }

func (load load) fitsInto(spec *v1alpha1.NodeAutoscaling, nodes int32) bool {
	const share = percentAfterRemoval / 100.0
	if each := spec.SessionsPerNode; each != nil && load.sessions > share*float64(*each)*float64(nodes) {
		return false
	}
	percent := spec.BusyPercent
	return percent == nil || load.busy*100 <= share*float64(*percent)*float64(nodes)
}
