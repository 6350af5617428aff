package reconcile

import (
	"slices"

	"github.com/dunlin-project/dunlin/platform/render"
)

// isWithoutKind reports whether a live workload selects its pods without render.LabelKind. Operators of before that label have created it, and
// the API server refuses to change the selector.
func (decision *decision) isWithoutKind() bool {
	return slices.ContainsFunc(decision.input.Live, func(object Manifest) bool {
		isOurs := decision.isOwn(object) || decision.isRegained(object) || decision.isLeft(object)
		if !isWorkload(object) || !isOurs {
			return false
		}
		spec, _ := object["spec"].(map[string]any)
		selector, _ := spec["selector"].(map[string]any)
		labels, _ := selector["matchLabels"].(map[string]any)
		return labels[render.LabelKind] == nil
	})
}

// withoutKind returns the objects without render.LabelKind. Labels and selectors change together: a Service that selects by the label would find
// no pod of before, and pods that get the label would be restarted.
func withoutKind(objects []Manifest) []Manifest {
	var found []Manifest
	for _, object := range objects {
		object = clone(object)
		// The data of a revision belongs to the user.
		removeKey(object["metadata"], render.LabelKind)
		removeKey(object["spec"], render.LabelKind)
		found = append(found, object)
	}
	return found
}

func removeKey(value any, key string) {
	switch value := value.(type) {
	case map[string]any:
		delete(value, key)
		for _, field := range value {
			removeKey(field, key)
		}
	case []any:
		for _, element := range value {
			removeKey(element, key)
		}
	}
}
