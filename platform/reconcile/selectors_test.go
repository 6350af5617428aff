package reconcile

import (
	"maps"
	"testing"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// selectorOf returns the labels by which a workload or a Service selects its pods.
func selectorOf(object Manifest) map[string]any {
	spec, _ := object["spec"].(map[string]any)
	selector, _ := spec["selector"].(map[string]any)
	if labels, isNested := selector["matchLabels"].(map[string]any); isNested {
		return labels
	}
	return selector
}

// labelsOfPods returns the labels of a workload's pods.
func labelsOfPods(object Manifest) map[string]any {
	spec, _ := object["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	metadata, _ := template["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	return labels
}

func worlds() map[string]*world {
	app, dunlin := newWorld(), newDunlinWorld()
	dunlin.dunlin.Spec.NATS = &v1alpha1.NATS{Image: "nats:1", Servers: new(int32(1))}
	return map[string]*world{"App": app, "Dunlin": dunlin}
}

func TestSelectorsHaveTheKind(t *testing.T) {
	for kind, world := range worlds() {
		if _, err := world.converge(); err != nil {
			t.Fatal(err)
		}
		found := 0
		for key, object := range world.api.objects {
			if object["kind"] != "Service" && !isWorkload(object) {
				continue
			}
			found++
			if selector := selectorOf(object); selector[render.LabelKind] != kind {
				t.Errorf("%s selects %v", key, selector)
			}
			if isWorkload(object) && labelsOfPods(object)[render.LabelKind] != kind {
				t.Errorf("pods of %s have the labels %v", key, labelsOfPods(object))
			}
		}
		if found < 2 {
			t.Fatalf("%d objects", found)
		}
	}
}

// TestWorkloadsOfBeforeKeepTheirSelector has an operator of before the label create the objects. The selector of a workload cannot be changed, and a
// Service that selects by the label would find no pod.
func TestWorkloadsOfBeforeKeepTheirSelector(t *testing.T) {
	for kind, world := range worlds() {
		world.rendered = withoutKind(world.desired())
		if _, err := world.converge(); err != nil {
			t.Fatal(err)
		}
		before := world.api.snapshot()
		world.change()
		if result, err := world.pass(1 << 20); err != nil || len(result.Writes) > 0 {
			t.Fatalf("%s: an upgrade of the operator writes %v: %v", kind, result.Writes, err)
		}
		if after := world.api.snapshot(); !maps.Equal(before, after) {
			t.Fatalf("%s: %v became %v", kind, before, after)
		}
		// A release changes the pods, and not what selects them.
		if world.app != nil {
			world.app.Spec.Image = "shop:2"
		} else {
			world.dunlin.Spec.Image = "dunlin:2"
		}
		world.change()
		if _, err := world.converge(); err != nil {
			t.Fatal(err)
		}
		for key, object := range world.api.objects {
			_, isSelecting := selectorOf(object)[render.LabelKind]
			_, isLabeled := labelsOfPods(object)[render.LabelKind]
			if isSelecting || isLabeled {
				t.Errorf("%s: %v, %v", key, selectorOf(object), labelsOfPods(object))
			}
		}
		for key, object := range world.api.objects {
			if isWorkload(object) {
				delete(world.api.objects, key)
			}
		}
		if _, err := world.converge(); err != nil {
			t.Fatal(err)
		}
		for key, object := range world.api.objects {
			if (object["kind"] == "Service" || isWorkload(object)) && selectorOf(object)[render.LabelKind] != kind {
				t.Errorf("%s, whose workload is new, selects %v", key, selectorOf(object))
			}
		}
	}
}
