package reconcile

import (
	"slices"

	"github.com/dunlin-project/dunlin/platform/render"
)

// Operators of before render.LabelKind have created workloads that select their pods without it, and the API server refuses to change a selector.
// Such a workload keeps its selector, and what selects its pods is without the label as well. All other workloads have it.

// unlabeled says where the label is missing.
type unlabeled struct {
	// workloads has the keys of the desired workloads that are without it.
	workloads map[string]bool
	// parts have pods without it. What selects a part, in Services, policies and budgets, is without it as well: it would find no pod of before.
	parts map[string]bool
}

func (decision *decision) unlabeled() unlabeled {
	found := unlabeled{map[string]bool{}, map[string]bool{}}
	add := func(object Manifest) {
		found.workloads[keyOf(object)] = true
		part, _ := selectedLabels(object)[render.LabelPart].(string)
		found.parts[part] = true
	}
	for _, object := range decision.live {
		if !isWorkload(object) || selectedLabels(object)[render.LabelKind] != nil {
			continue
		}
		if decision.isOwn(object) || decision.isRegained(object) || decision.isLeft(object) {
			add(object)
		}
	}
	for _, object := range decision.input.Desired {
		if isWorkload(object) && decision.live[keyOf(object)] == nil && decision.hasPodsOfBefore(object) {
			add(object)
		}
	}
	return found
}

// hasPodsOfBefore reports whether pods without the label have outlived a workload, as after `kubectl delete --cascade=orphan`. Without the label in its
// selector, the new workload adopts them. With it, nothing would ever replace or end them.
func (decision *decision) hasPodsOfBefore(workload Manifest) bool {
	return slices.ContainsFunc(decision.input.UnlabeledPods, func(labels map[string]string) bool {
		for name, value := range selectedLabels(workload) {
			if name != render.LabelKind && labels[name] != value {
				return false
			}
		}
		return true
	})
}

// selectedLabels returns the labels by which a workload selects its pods.
func selectedLabels(workload Manifest) map[string]any {
	spec, _ := workload["spec"].(map[string]any)
	selector, _ := spec["selector"].(map[string]any)
	labels, _ := selector["matchLabels"].(map[string]any)
	return labels
}

// has reports whether pods of a part lack the label. The Jobs of a subject follow its main workload: their pods end by themselves, and what selects them
// has to find those that run.
func (unlabeled unlabeled) has(part string) bool {
	if !slices.Contains(render.WorkloadParts, part) {
		part = render.PartMain
	}
	return unlabeled.parts[part]
}

// applyTo returns the desired objects, each without the label where its pods lack it.
func (unlabeled unlabeled) applyTo(objects []Manifest) []Manifest {
	if len(unlabeled.parts) == 0 {
		return objects
	}
	var found []Manifest
	for _, object := range objects {
		isWithout := unlabeled.has
		if isWorkload(object) {
			isOfBefore := unlabeled.workloads[keyOf(object)]
			isWithout = func(string) bool { return isOfBefore }
		}
		found = append(found, withoutKind(object, isWithout))
	}
	return found
}

// withoutKind returns an object without render.LabelKind in labels and selectors of some parts. They change together: pods that get the label would be
// restarted.
func withoutKind(object Manifest, isWithout func(part string) bool) Manifest {
	object = clone(object)
	// The data of a revision belongs to the user.
	removeKind(object["metadata"], isWithout)
	removeKind(object["spec"], isWithout)
	return object
}

func removeKind(value any, isWithout func(part string) bool) {
	switch value := value.(type) {
	case map[string]any:
		if part, _ := value[render.LabelPart].(string); value[render.LabelKind] != nil && isWithout(part) {
			delete(value, render.LabelKind)
		}
		for _, field := range value {
			removeKind(field, isWithout)
		}
	case []any:
		for _, element := range value {
			removeKind(element, isWithout)
		}
	}
}
