package operator_test

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// TestAPodPatch has a real API server take a patched pod, and the condition name the path of a patch that is refused.
func TestAPodPatch(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "patches")
	text, err := os.ReadFile("../render/testdata/cases/pod-patch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	app := &v1alpha1.App{}
	if err := yaml.Unmarshal(text, app); err != nil {
		t.Fatal(err)
	}
	app.Namespace = world.namespace
	world.create(app)
	world.converge("App", "shop")
	if text, message := world.status(app); text != well {
		t.Fatal(text, message)
	}
	for _, deployment := range world.list("Deployment", "shop") {
		containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
		if len(containers) != 2 {
			t.Errorf("%s has %d containers", deployment.GetName(), len(containers))
		}
	}

	app.Spec.PodPatch = &v1alpha1.PodPatch{Template: &runtime.RawExtension{Raw: []byte(`{"spec": {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "other"}}]}}`)}}
	world.update(app)
	before := len(world.calls.reset(0, false))
	world.converge("App", "shop")
	status, message := world.status(app)
	if !strings.Contains(status, "Degraded=True SpecInvalid") || !strings.HasPrefix(message, "spec.podPatch.template.spec.volumes[1].secret: is not a field that a patch may set") || before == 0 {
		t.Error(status, message)
	}
	for _, call := range world.calls.reset(0, false) {
		if !strings.HasSuffix(call, "/apps/shop/status") {
			t.Errorf("%s, although the spec is invalid", call)
		}
	}
}
