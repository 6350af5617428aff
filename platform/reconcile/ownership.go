package reconcile

import (
	"fmt"
	"slices"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// keyOf identifies an object in the namespace of its owner. The kinds that Roost renders have one version each.
func keyOf(object Manifest) string {
	return fmt.Sprintf("%v/%s", object["kind"], metadataText(object, "name"))
}

func metadataText(object Manifest, field string) string {
	metadata, _ := object["metadata"].(map[string]any)
	text, _ := metadata[field].(string)
	return text
}

func annotation(object Manifest, name string) string {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	text, _ := annotations[name].(string)
	return text
}

func label(object Manifest, name string) string {
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	text, _ := labels[name].(string)
	return text
}

// controllerOf returns the controller reference of an object, or nil.
func controllerOf(object Manifest) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	references, _ := metadata["ownerReferences"].([]any)
	for _, element := range references {
		reference, _ := element.(map[string]any)
		if isController, _ := reference["controller"].(bool); isController {
			return reference
		}
	}
	return nil
}

// isOwn reports whether an object belongs to the owner. It requires the owner's UID, and a proof that Roost has created the object: the labels
// and the annotation, the inventory, or the fields that FieldManager has applied. One of them alone can be accidental: labels are copied, and an
// owner of the same name may have been deleted and recreated.
func (decision *decision) isOwn(object Manifest) bool {
	_, uid := ownerOf(object)
	return uid == decision.input.Owner.UID && (decision.isRendered(object) || decision.isRecorded(object) || isApplied(object))
}

// isRegained reports whether a user or program has removed the owner and the labels of an own object. The UID identifies the object. It is
// applied again if it is desired, and ignored otherwise.
func (decision *decision) isRegained(object Manifest) bool {
	_, uid := ownerOf(object)
	return uid == "" && decision.isRecorded(object)
}

// isRecorded reports whether the object was own in an earlier pass.
func (decision *decision) isRecorded(object Manifest) bool {
	uid := metadataText(object, "uid")
	return uid != "" && slices.ContainsFunc(decision.input.Inventory, func(recorded v1alpha1.ObjectRef) bool {
		return recorded.UID == uid && recorded.Kind == object["kind"]
	})
}

// isApplied reports whether FieldManager has applied fields of the object. Objects from a cache do not have this information.
func isApplied(object Manifest) bool {
	metadata, _ := object["metadata"].(map[string]any)
	managers, _ := metadata["managedFields"].([]any)
	return slices.ContainsFunc(managers, func(element any) bool {
		manager, _ := element.(map[string]any)
		return manager["manager"] == FieldManager && manager["operation"] == "Apply"
	})
}

// isRendered reports whether Roost has created the object for a subject of this name.
func (decision *decision) isRendered(object Manifest) bool {
	return decision.isLabeled(object) && annotation(object, AnnotationApplied) != ""
}

// isLabeled reports whether the object has the labels by which the operator finds it.
func (decision *decision) isLabeled(object Manifest) bool {
	return label(object, render.LabelManagedBy) == render.ManagedBy && label(object, render.LabelApp) == decision.input.Owner.Name
}

// belongsToEarlierOwner reports whether the object was created for an owner of the same kind and name that has been deleted. Kubernetes
// garbage-collects it. Until then its name cannot be used.
func (decision *decision) belongsToEarlierOwner(object Manifest) bool {
	controller, owner := controllerOf(object), decision.input.Owner
	return controller != nil && controller["kind"] == owner.Kind && controller["name"] == owner.Name && controller["uid"] != owner.UID
}

// holderOf returns the name of the App that an object with a name that the spec needs belongs to, or an empty string.
func (decision *decision) holderOf(key string) string {
	controller := controllerOf(decision.live[key])
	name, _ := controller["name"].(string)
	if controller["kind"] != "App" || controller["apiVersion"] != v1alpha1.GroupVersion.String() {
		return ""
	}
	return name
}

// takenBy returns the names of the Apps that hold names, sorted.
func (decision *decision) takenBy() []string {
	var names []string
	for _, key := range decision.taken {
		if name := decision.holderOf(key); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isPrunable returns false for data, even if the operator owns it.
func isPrunable(object Manifest) bool {
	switch object["kind"] {
	case "PersistentVolumeClaim", "PersistentVolume", "Namespace":
		return false
	}
	return true
}

// isSettings reports whether the object holds the settings of a revision.
func isSettings(object Manifest) bool {
	isImmutable, _ := object["immutable"].(bool)
	return isImmutable && (object["kind"] == "ConfigMap" || object["kind"] == "Secret")
}

func isWorkload(object Manifest) bool {
	return object["kind"] == "Deployment" || object["kind"] == "StatefulSet"
}

type jobState int

const (
	jobNone jobState = iota
	jobRunning
	jobSucceeded
	jobFailed
)

// jobStateOf reads the conditions of a Job. A missing Job counts as running.
func jobStateOf(job Manifest) jobState {
	status, _ := job["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, element := range conditions {
		condition, _ := element.(map[string]any)
		if condition["status"] != "True" {
			continue
		}
		switch condition["type"] {
		case "Complete":
			return jobSucceeded
		case "Failed":
			return jobFailed
		}
	}
	return jobRunning
}
