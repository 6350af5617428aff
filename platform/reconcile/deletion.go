package reconcile

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// AnnotationOwner is on an object that outlives its owner, instead of the reference by which Kubernetes would delete it: the kind
// and the UID of the owner.
const AnnotationOwner = v1alpha1.Group + "/owner"

// mark is the value of AnnotationOwner.
func (owner Owner) mark() string { return owner.Kind + "/" + owner.UID }

// reference has Kubernetes delete an object with its owner.
func (owner Owner) reference() map[string]any {
	return map[string]any{
		"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": owner.UID,
		"controller": true, "blockOwnerDeletion": true,
	}
}

// ownerOf is the controller of an object, or what AnnotationOwner names if there is no controller.
func ownerOf(object Manifest) (kind, uid string) {
	if controller := controllerOf(object); controller != nil {
		kind, _ = controller["kind"].(string)
		uid, _ = controller["uid"].(string)
		return kind, uid
	}
	kind, uid, _ = strings.Cut(annotation(object, AnnotationOwner), "/")
	return kind, uid
}

// IsOwnedBy is whether an object has an owner, in either way.
func IsOwnedBy(object metav1.Object, uid types.UID) bool {
	if controller := metav1.GetControllerOf(object); controller != nil {
		return controller.UID == uid
	}
	_, found, _ := strings.Cut(object.GetAnnotations()[AnnotationOwner], "/")
	return found != "" && types.UID(found) == uid
}

// isLeft is whether an earlier owner of the same kind and name has left the object behind by its policy. The new one takes it over.
func (decision *decision) isLeft(object Manifest) bool {
	if controllerOf(object) != nil {
		return false
	}
	kind, uid := ownerOf(object)
	return kind == decision.input.Owner.Kind && uid != "" && uid != decision.input.Owner.UID && decision.isRendered(object)
}

// bind has the policy hold for all objects: also for those of earlier revisions, for those that are applied once, and for those that are not
// applied because something is wrong with the spec. Labels that were removed from them come back. What an earlier owner has left behind is
// taken over, if nothing is wrong.
func (decision *decision) bind() {
	applied := map[string]bool{}
	for _, write := range decision.writes {
		applied[keyOf(write.Object)] = applied[keyOf(write.Object)] || write.Kind == WriteApply
	}
	for _, key := range slices.Sorted(maps.Keys(decision.live)) {
		object := decision.live[key]
		isTaken := decision.isLeft(object) && !decision.isStopped() || decision.wanted[key] != nil && decision.isRegained(object)
		if applied[key] || !isPrunable(object) || !decision.isOwn(object) && !isTaken || decision.isBound(object) {
			continue
		}
		decision.writes = append(decision.writes, Write{Kind: WriteOwner, Object: decision.bound(object), UID: metadataText(object, "uid")})
	}
}

// isBound is whether an object is found by its labels, and has the owner in the way of its policy.
func (decision *decision) isBound(object Manifest) bool {
	owner := decision.input.Owner
	if !decision.isLabeled(object) {
		return false
	}
	if owner.Orphans {
		return controllerOf(object) == nil && annotation(object, AnnotationOwner) == owner.mark()
	}
	controller := controllerOf(object)
	return controller != nil && controller["uid"] == owner.UID && annotation(object, AnnotationOwner) == ""
}

// bound is the patch for it. References to others stay.
func (decision *decision) bound(object Manifest) Manifest {
	owner := decision.input.Owner
	metadata, _ := object["metadata"].(map[string]any)
	live, _ := metadata["ownerReferences"].([]any)
	references := []any{}
	for _, element := range live {
		if reference, _ := element.(map[string]any); reference["uid"] != owner.UID {
			references = append(references, element)
		}
	}
	var mark any
	if owner.Orphans {
		mark = owner.mark()
	} else {
		references = append(references, owner.reference())
	}
	return Manifest{
		"apiVersion": object["apiVersion"], "kind": object["kind"],
		"metadata": map[string]any{
			"name": metadataText(object, "name"), "ownerReferences": references, "annotations": map[string]any{AnnotationOwner: mark},
			"labels": decision.labelsOf(object),
		},
	}
}

// labelsOf are those that an object has to have: all that were rendered, if it is still desired.
func (decision *decision) labelsOf(object Manifest) map[string]any {
	labels := map[string]any{render.LabelManagedBy: render.ManagedBy, render.LabelApp: decision.input.Owner.Name}
	metadata, _ := decision.wanted[keyOf(object)]["metadata"].(map[string]any)
	rendered, _ := metadata["labels"].(map[string]any)
	maps.Copy(labels, rendered)
	return labels
}
