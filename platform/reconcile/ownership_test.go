package reconcile

import (
	"testing"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// An object is Roost's by its owner and one of three proofs. An object that has lost its owner and its labels is Roost's by its UID alone.
func TestWhoseAnObjectIs(t *testing.T) {
	recorded := []v1alpha1.ObjectRef{{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop", UID: "uid-1"}}
	managed := func(manager, operation string) []any {
		return []any{map[string]any{"manager": manager, "operation": operation}}
	}
	// The fields that a user removes from the metadata of an applied object.
	labels, owner := []string{"labels"}, []string{"ownerReferences"}
	all := []string{"labels", "annotations", "ownerReferences"}
	for _, row := range []struct {
		name      string
		removed   []string
		uid       string
		inventory []v1alpha1.ObjectRef
		managers  []any
		isOwn     bool
	}{
		{"as it was applied", nil, "uid-1", nil, nil, true},
		{"no labels, recorded", labels, "uid-1", recorded, nil, true},
		{"no labels, applied", labels, "uid-1", nil, managed(FieldManager, "Apply"), true},
		{"no labels, applied by another manager", labels, "uid-1", nil, managed("kubectl", "Apply"), false},
		{"no labels, updated under our name", labels, "uid-1", nil, managed(FieldManager, "Update"), false},
		{"no labels, nothing known", labels, "uid-1", nil, nil, false},
		{"no labels, made anew by somebody else", labels, "uid-2", recorded, nil, false},
		{"no labels, the status of another kind", labels, "uid-1", []v1alpha1.ObjectRef{{Kind: "Service", Name: "shop", UID: "uid-1"}}, nil, false},
		{"no annotations, recorded", []string{"annotations"}, "uid-1", recorded, nil, true},
		{"no owner, recorded", owner, "uid-1", recorded, nil, true},
		{"no owner, applied", owner, "uid-1", nil, managed(FieldManager, "Apply"), false},
		{"nothing left, recorded", all, "uid-1", recorded, nil, true},
		{"nothing left, made anew by somebody else", all, "uid-2", recorded, nil, false},
		{"no UID", all, "", []v1alpha1.ObjectRef{{Kind: "Deployment", Name: "shop"}}, nil, false},
	} {
		live := stamp(deployment(2), revisionsOwner)
		metadata := live["metadata"].(map[string]any)
		metadata["uid"], metadata["managedFields"] = row.uid, row.managers
		for _, field := range row.removed {
			delete(metadata, field)
		}
		input := Input{Owner: revisionsOwner, Desired: []Manifest{deployment(2)}, Live: []Manifest{live}, Inventory: row.inventory}
		result := Decide(input)
		isTaken := conditionOf(result, ConditionDegraded).Reason == ReasonNameTaken
		if isTaken == row.isOwn || len(result.Inventory) == 0 == row.isOwn {
			t.Errorf("%s: taken: %t, inventory: %v", row.name, isTaken, result.Inventory)
		}
		if wantsWrite := row.isOwn && row.removed != nil; wantsWrite != (len(result.Writes) == 1) {
			t.Errorf("%s: %v", row.name, result.Writes)
		}
		// An object that is no longer desired is deleted only if it has the owner.
		input.Desired = nil
		deleted := Decide(input).Writes
		if hasOwner := metadata["ownerReferences"] != nil; (row.isOwn && hasOwner) != (len(deleted) > 0) {
			t.Errorf("%s: not desired: %v", row.name, deleted)
		}
	}
	// Another owner has adopted the object.
	adopted := stamp(deployment(2), Owner{APIVersion: revisionsOwner.APIVersion, Kind: "App", Name: "other", UID: "uid-of-other"})
	adopted["metadata"].(map[string]any)["uid"] = "uid-1"
	result := Decide(Input{Owner: revisionsOwner, Desired: []Manifest{deployment(2)}, Live: []Manifest{adopted}, Inventory: recorded})
	if len(result.Writes) > 0 || conditionOf(result, ConditionDegraded).Reason != ReasonNameTaken {
		t.Errorf("adopted by another owner: %v", result.Writes)
	}
}

// An object that is applied once is not applied again. It gets back the labels with which it was rendered.
func TestLabelsOfAJobComeBack(t *testing.T) {
	job := Manifest{
		"apiVersion": "batch/v1", "kind": "Job", "spec": map[string]any{"backoffLimit": int64(2)},
		"metadata": map[string]any{
			"name": "shop-run-a", "namespace": "web", "labels": withPart("run"), "annotations": map[string]any{render.AnnotationOnce: "true"},
		},
	}
	live := stamp(job, revisionsOwner)
	metadata := live["metadata"].(map[string]any)
	metadata["uid"], metadata["managedFields"] = "uid-1", []any{map[string]any{"manager": FieldManager, "operation": "Apply"}}
	delete(metadata, "labels")
	input := Input{Owner: revisionsOwner, Desired: []Manifest{job}, Live: []Manifest{live}}
	writes := Decide(input).Writes
	if len(writes) != 1 || writes[0].Kind != WriteOwner || writes[0].UID != "uid-1" || label(writes[0].Object, render.LabelPart) != "run" || writes[0].Object["spec"] != nil {
		t.Fatalf("%v", writes)
	}
	mergeFields(live, writes[0].Object)
	if again := Decide(input).Writes; len(again) > 0 {
		t.Errorf("%v", again)
	}
}
