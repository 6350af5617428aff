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

// AnnotationOwner names the kind and the UID of the owner on an object that outlives it. It replaces the owner reference, because Kubernetes
// would delete the object with its owner.
const AnnotationOwner = v1alpha1.Group + "/owner"

// mark returns the value of AnnotationOwner.
func (owner Owner) mark() string { return owner.Kind + "/" + owner.UID }

// reference returns an owner reference. Kubernetes deletes an object that has one together with its owner.
func (owner Owner) reference() map[string]any {
	return map[string]any{
		"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": owner.UID,
		"controller": true, "blockOwnerDeletion": true,
	}
}

// ownerOf returns the controller of an object or, if there is none, the owner in AnnotationOwner.
func ownerOf(object Manifest) (kind, uid string) {
	if controller := controllerOf(object); controller != nil {
		kind, _ = controller["kind"].(string)
		uid, _ = controller["uid"].(string)
		return kind, uid
	}
	kind, uid, _ = strings.Cut(annotation(object, AnnotationOwner), "/")
	return kind, uid
}

// IsOwnedBy reports whether an object has an owner, by reference or by AnnotationOwner.
func IsOwnedBy(object metav1.Object, uid types.UID) bool {
	if controller := metav1.GetControllerOf(object); controller != nil {
		return controller.UID == uid
	}
	_, found, _ := strings.Cut(object.GetAnnotations()[AnnotationOwner], "/")
	return found != "" && types.UID(found) == uid
}

// isLeft reports whether an earlier owner of the same kind and name has orphaned the object by its policy. The new owner adopts it.
func (decision *decision) isLeft(object Manifest) bool {
	if controllerOf(object) != nil {
		return false
	}
	kind, uid := ownerOf(object)
	return kind == decision.input.Owner.Kind && uid != "" && uid != decision.input.Owner.UID && decision.isRendered(object)
}

// bind applies the deletion policy to all objects: also to those of earlier revisions, to those that are applied once, and to those that are not
// applied because of an error in the spec. It restores removed labels. If there is no error, it adopts the objects that an earlier owner has
// orphaned.
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

// isBound reports whether the object has its labels, and an owner in the form that its policy requires.
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

// bound returns the patch that binds the object. It keeps references to other owners.
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

// labelsOf returns the labels that an object must have: all rendered labels, if the object is still desired.
func (decision *decision) labelsOf(object Manifest) map[string]any {
	labels := map[string]any{render.LabelManagedBy: render.ManagedBy, render.LabelApp: decision.input.Owner.Name}
	metadata, _ := decision.wanted[keyOf(object)]["metadata"].(map[string]any)
	rendered, _ := metadata["labels"].(map[string]any)
	maps.Copy(labels, rendered)
	return labels
}
