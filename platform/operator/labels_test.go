package operator_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/render"
)

// without removes fields of the metadata of an object, as a client other than Roost would.
func (world *world) without(object *unstructured.Unstructured, fields ...string) {
	world.t.Helper()
	object = object.DeepCopy()
	for _, field := range fields {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	if err := world.admin.Update(world.t.Context(), object, client.FieldOwner("kubectl-replace")); err != nil {
		world.t.Fatalf("%s/%s: %v", object.GetKind(), object.GetName(), err)
	}
}

// objects returns the objects of an app except claims, which Roost does not create.
func (world *world) objects(app string) []*unstructured.Unstructured {
	world.t.Helper()
	var found []*unstructured.Unstructured
	for kind := range versions {
		if kind != "PersistentVolumeClaim" {
			found = append(found, world.list(kind, app)...)
		}
	}
	if len(found) < 8 {
		world.t.Fatalf("%d objects", len(found))
	}
	return found
}

// TestLabelsThatWereRemovedComeBack removes from each object the metadata that marks it as managed by Roost.
func TestLabelsThatWereRemovedComeBack(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "unlabeled")
	app := world.large()
	world.create(app)
	dunlin := world.clustered("rt")
	world.create(dunlin)
	for name, kind := range map[string]string{app.Name: operator.KindApp, "rt": operator.KindDunlin} {
		world.converge(kind, name)
		before := world.objects(name)
		for _, fields := range [][]string{{"labels"}, {"labels", "annotations"}, {"labels", "annotations", "ownerReferences"}} {
			for _, object := range world.objects(name) {
				world.without(object, fields...)
			}
			if left := world.list("Service", name); len(left) > 0 {
				t.Fatalf("%d Services have their labels", len(left))
			}
			world.converge(kind, name)
			world.areAsBefore(strings.Join(fields, ", "), before)
		}
		object := newSubject(kind)
		object.SetName(name)
		if text, message := world.status(object); !strings.Contains(text, "Degraded=False AsDesired") {
			t.Errorf("%s: %s: %s", name, text, message)
		}
	}
}

// areAsBefore compares the UIDs and the owners of objects.
func (world *world) areAsBefore(when string, before []*unstructured.Unstructured) {
	world.t.Helper()
	for _, old := range before {
		found := world.object(old.GetKind(), old.GetName())
		same := found.GetUID() == old.GetUID() && normal(labelsOf(found)) == normal(labelsOf(old)) && len(found.GetOwnerReferences()) == 1
		if !same {
			world.t.Errorf("%s: %s/%s: labels %v, owners %v", when, old.GetKind(), old.GetName(), found.GetLabels(), found.GetOwnerReferences())
		}
	}
}

// labelsOf returns the labels that Roost sets. The server adds others to a new Job.
func labelsOf(object *unstructured.Unstructured) map[string]any {
	found := map[string]any{}
	for name, value := range object.GetLabels() {
		if strings.HasPrefix(name, "app.kubernetes.io/") || strings.HasPrefix(name, v1alpha1.Group+"/") {
			found[name] = value
		}
	}
	return found
}

// TestAnObjectInThePlaceOfOursIsNotTaken creates foreign objects that look like objects of Roost. They stay unchanged.
func TestAnObjectInThePlaceOfOursIsNotTaken(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "in-place")
	app := world.app("shop")
	world.create(app)
	world.converge(operator.KindApp, "shop")
	ours := world.object("Service", "shop")
	for _, row := range []struct {
		name   string
		change func(*corev1.Service)
	}{
		{"another Service under the name", func(*corev1.Service) {}},
		{"with our owner", func(service *corev1.Service) { service.OwnerReferences = ours.GetOwnerReferences() }},
		{"with our labels", func(service *corev1.Service) { service.Labels = ours.GetLabels() }},
		{"with our annotations", func(service *corev1.Service) { service.Annotations = ours.GetAnnotations() }},
	} {
		world.deleteOne("Service", "shop")
		foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: world.namespace}}
		foreign.Spec.Ports = []corev1.ServicePort{{Port: 1}}
		row.change(foreign)
		world.create(foreign)
		version := foreign.ResourceVersion
		world.converge(operator.KindApp, "shop")
		status, message := world.status(app)
		if !strings.Contains(status, "Degraded=True NameTaken") || !strings.Contains(message, "Service/shop; rename or delete them") {
			t.Errorf("%s: %s: %s", row.name, status, message)
		}
		if err := world.get("shop", foreign); err != nil || foreign.ResourceVersion != version {
			t.Errorf("%s: %v, version %s", row.name, err, foreign.ResourceVersion)
		}
	}
	world.deleteOne("Service", "shop")
	world.converge(operator.KindApp, "shop")
	if status, message := world.status(app); status != well {
		t.Errorf("%s: %s", status, message)
	}
}

// TestLabelsComeBackInTime runs the operator. It notices the change although it does not watch objects without its labels.
func TestLabelsComeBackInTime(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "unlabeled-running")
	app := world.app("shop")
	world.files(app, "LOG_LEVEL=info\nTOKEN=one\n")
	world.create(app)
	world.runOperator()
	world.waitUntilWell(1)
	for _, old := range world.objects("shop") {
		world.without(world.object(old.GetKind(), old.GetName()), "labels")
		begin := time.Now()
		wait(t, old.GetKind()+"/"+old.GetName()+" has its labels", func() bool {
			var found unstructured.Unstructured
			found.SetAPIVersion(versions[old.GetKind()])
			found.SetKind(old.GetKind())
			err := world.admin.Get(t.Context(), types.NamespacedName{Namespace: world.namespace, Name: old.GetName()}, &found)
			return err == nil && found.GetUID() == old.GetUID() && normal(labelsOf(&found)) == normal(labelsOf(old))
		})
		if took := time.Since(begin); took > driftSecondsMax*time.Second {
			t.Errorf("%s/%s had no labels for %s, more than %d s", old.GetKind(), old.GetName(), took, driftSecondsMax)
		}
	}
	world.waitUntilWell(1)
}

// TestAWorkloadOfBeforeKeepsItsSelector replaces a Deployment by one of an operator of before the label of the kind. A real API server refuses another
// selector.
func TestAWorkloadOfBeforeKeepsItsSelector(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "selector-of-before")
	world.create(world.app("shop"))
	world.converge(operator.KindApp, "shop")
	made := world.object("Deployment", "shop")
	selector, _, _ := unstructured.NestedStringMap(made.Object, "spec", "selector", "matchLabels")
	if selector[render.LabelKind] != operator.KindApp {
		t.Fatalf("a new Deployment selects %v", selector)
	}
	earlier := made.DeepCopy()
	for _, path := range [][]string{{"metadata", "labels"}, {"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
		unstructured.RemoveNestedField(earlier.Object, append(path, render.LabelKind)...)
	}
	unstructured.RemoveNestedField(earlier.Object, "metadata", "managedFields")
	earlier.SetResourceVersion("")
	earlier.SetUID("")
	if err := world.admin.Delete(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	world.create(earlier)
	world.converge(operator.KindApp, "shop")
	if text, message := world.status(world.app("shop")); !strings.Contains(text, "Degraded=False AsDesired") || !strings.Contains(text, "Ready=True AsDesired") {
		t.Errorf("%s: %s", text, message)
	}
	now := world.object("Deployment", "shop")
	selector, _, _ = unstructured.NestedStringMap(now.Object, "spec", "selector", "matchLabels")
	service, _, _ := unstructured.NestedStringMap(world.object("Service", "shop").Object, "spec", "selector")
	if now.GetUID() != earlier.GetUID() || selector[render.LabelKind] != "" || service[render.LabelKind] != "" {
		t.Errorf("the Deployment selects %v, the Service %v", selector, service)
	}
}
