package reconcile

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// asBefore returns objects as operators of before render.LabelKind have made them.
func asBefore(objects []Manifest) []Manifest {
	var found []Manifest
	for _, object := range objects {
		found = append(found, withoutKind(object, func(string) bool { return true }))
	}
	return found
}

// kindIn returns the value of render.LabelKind by which an object selects, or "".
func kindIn(object Manifest) string {
	kind, _ := selectorOf(object)[render.LabelKind].(string)
	return kind
}

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
		world.rendered = asBefore(world.desired())
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

// TestANewWorkloadBesideOneOfBeforeHasTheKind gives a Dunlin of before the label NATS servers, and an App of before a volume, which makes its Deployment a
// StatefulSet. Only what selects pods of before is without the label.
func TestANewWorkloadBesideOneOfBeforeHasTheKind(t *testing.T) {
	dunlin := newDunlinWorld()
	dunlin.rendered = asBefore(dunlin.desired())
	if _, err := dunlin.converge(); err != nil {
		t.Fatal(err)
	}
	dunlin.change()
	dunlin.dunlin.Spec.Nodes = new(int32(2))
	dunlin.dunlin.Spec.NATS = &v1alpha1.NATS{Image: "nats:1", Servers: new(int32(1))}
	if _, err := dunlin.converge(); err != nil {
		t.Fatal(err)
	}
	for key, kind := range map[string]string{"StatefulSet/shop": "", "Service/shop": "", "StatefulSet/shop-nats": "Dunlin", "Service/shop-nats": "Dunlin"} {
		object, isThere := dunlin.api.objects[key]
		if found := kindIn(object); !isThere || found != kind {
			t.Errorf("%s: there: %t, selects %q", key, isThere, found)
		}
	}
	policy := fmt.Sprint(dunlin.api.objects["NetworkPolicy/shop-nats"]["spec"])
	nodes := fmt.Sprint(map[string]any{"matchLabels": map[string]any{render.LabelApp: "shop", render.LabelPart: render.PartMain}})
	if !strings.Contains(policy, nodes) {
		t.Errorf("the NATS servers take no connection of nodes of before: %s", policy)
	}

	app := newWorld()
	app.rendered = asBefore(app.desired())
	if _, err := app.converge(); err != nil {
		t.Fatal(err)
	}
	app.change()
	app.app.Spec.Volumes = []v1alpha1.Volume{{Name: "data", Path: "/data", Size: new(resource.MustParse("1Gi"))}}
	if _, err := app.pass(1 << 20); err != nil {
		t.Fatal(err)
	}
	if set, service := app.api.objects["StatefulSet/shop"], app.api.objects["Service/shop"]; kindIn(set) != "App" || kindIn(service) != "" {
		t.Errorf("while the Deployment of before is there, the StatefulSet selects %v and the Service %v", selectorOf(set), selectorOf(service))
	}
	if _, err := app.converge(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"StatefulSet/shop", "Service/shop", "Service/shop-pods"} {
		if kindIn(app.api.objects[key]) != "App" {
			t.Errorf("%s selects %v", key, selectorOf(app.api.objects[key]))
		}
	}
	if _, isThere := app.api.objects["Deployment/shop"]; isThere {
		t.Error("the Deployment is still there")
	}
}

// TestPodsThatOutliveTheirWorkloadAreAdopted has the labels of pods without the kind. A new workload adopts them if its selector matches.
func TestPodsThatOutliveTheirWorkloadAreAdopted(t *testing.T) {
	world := newWorld()
	ofBefore := map[string]string{render.LabelApp: "shop", render.LabelPart: render.PartMain, render.LabelManagedBy: render.ManagedBy}
	ofJob := map[string]string{render.LabelApp: "shop", render.LabelPart: "cron", render.LabelManagedBy: render.ManagedBy}
	for _, row := range []struct {
		pods []map[string]string
		kind string
	}{
		{nil, "App"}, {[]map[string]string{ofJob}, "App"}, {[]map[string]string{ofJob, ofBefore}, ""},
	} {
		result := Decide(Input{Owner: world.owner, Desired: world.desired(), UnlabeledPods: row.pods})
		for _, write := range result.Writes {
			if isSelecting := isWorkload(write.Object) || write.Object["kind"] == "Service"; isSelecting && kindIn(write.Object) != row.kind {
				t.Errorf("with %v, %s selects %v", row.pods, keyOf(write.Object), selectorOf(write.Object))
			}
		}
	}
	// A workload that is there with the label does not adopt them, so they get no requests.
	if _, err := world.converge(); err != nil {
		t.Fatal(err)
	}
	desired := world.desired()
	result := Decide(Input{Owner: world.owner, Desired: desired, Live: world.api.list(desired), UnlabeledPods: []map[string]string{ofBefore}})
	if len(result.Writes) > 0 {
		t.Errorf("%v", result.Writes)
	}
}
