package operator_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// TestAutoscalingKeepsTheReplicas checks that autoscaling keeps the replicas of a Deployment, and later those that the autoscaler sets.
func TestAutoscalingKeepsTheReplicas(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "autoscaling")
	app := world.app("shop")
	app.Spec.Replicas = new(int32(5))
	world.create(app)
	world.converge("App", "shop")
	want := func(replicas int32) {
		t.Helper()
		var deployment appsv1.Deployment
		if err := world.get("shop", &deployment); err != nil || *deployment.Spec.Replicas != replicas {
			t.Fatalf("%v: %d replicas, want %d", err, *deployment.Spec.Replicas, replicas)
		}
	}
	edit := func(change func(spec *v1alpha1.AppSpec)) {
		t.Helper()
		if err := world.get("shop", app); err != nil {
			t.Fatal(err)
		}
		change(&app.Spec)
		world.update(app)
	}
	autoscale := func(spec *v1alpha1.AppSpec) {
		spec.Replicas, spec.Autoscaling = nil, &v1alpha1.Autoscaling{Min: 2, Max: 9, CPUPercent: new(int32(70))}
	}
	edit(autoscale)
	world.converge("App", "shop")
	want(5)
	world.converge("App", "shop")
	world.calls.reset(0, false)
	if err := world.pass("App", "shop"); err != nil || len(world.calls.writes) > 0 {
		t.Errorf("%v, %v", err, world.calls.writes)
	}

	// The autoscaler writes the subresource.
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 7}}
	var deployment appsv1.Deployment
	if err := world.get("shop", &deployment); err != nil {
		t.Fatal(err)
	}
	if err := world.admin.SubResource("scale").Update(t.Context(), &deployment, client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	world.calls.reset(0, false)
	if err := world.pass("App", "shop"); err != nil {
		t.Error(err)
	}
	for _, write := range world.calls.writes {
		if !strings.HasSuffix(write, "/status") {
			t.Errorf("%s after the autoscaler", write)
		}
	}
	want(7)
	edit(func(spec *v1alpha1.AppSpec) { spec.Image = "shop:2" })
	world.converge("App", "shop")
	want(7)

	edit(func(spec *v1alpha1.AppSpec) { spec.Replicas, spec.Autoscaling = new(int32(3)), nil })
	world.converge("App", "shop")
	want(3)
	edit(autoscale)
	world.converge("App", "shop")
	want(3)
}
