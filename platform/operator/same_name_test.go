package operator_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dunlin-project/dunlin/platform/operator"
)

// TestElementsOfOthersStay adds elements to lists of a Deployment, as a sidecar injector does. Those of lists that server-side apply merges stay; a list
// that it replaces as a whole is as rendered again. Nothing is in progress for good.
func TestElementsOfOthersStay(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "elements")
	app := world.app("shop")
	world.create(app)
	world.converge(operator.KindApp, "shop")
	var deployment appsv1.Deployment
	if err := world.get("shop", &deployment); err != nil {
		t.Fatal(err)
	}
	pod := &deployment.Spec.Template.Spec
	tolerations := len(pod.Tolerations)
	pod.Containers[0].Env = append(pod.Containers[0].Env, corev1.EnvVar{Name: "TRACE", Value: "on"})
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "trace", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	pod.Containers = append(pod.Containers, corev1.Container{Name: "tracer", Image: "tracer:1"})
	pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists})
	world.update(&deployment)
	world.converge(operator.KindApp, "shop")
	if status, message := world.status(app); status != well {
		t.Errorf("%s\n%s", status, message)
	}
	if err := world.get("shop", &deployment); err != nil {
		t.Fatal(err)
	}
	pod = &deployment.Spec.Template.Spec
	hasVariable := len(pod.Containers[0].Env) == 1 && pod.Containers[0].Env[0].Name == "TRACE"
	if !hasVariable || len(pod.Containers) != 2 || pod.Volumes[len(pod.Volumes)-1].Name != "trace" || len(pod.Tolerations) != tolerations {
		t.Errorf("%+v", pod)
	}
}

// TestASecondKindWithTheSameNameWritesNothing has a Dunlin with the name of an App, whose Service would select its pods.
func TestASecondKindWithTheSameNameWritesNothing(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "same-name")
	app := world.app("shop")
	world.create(app)
	world.converge(operator.KindApp, "shop")
	dunlin := world.clustered("shop")
	world.create(dunlin)
	before := world.versions()
	world.converge(operator.KindDunlin, "shop")
	if status, message := world.status(dunlin); !strings.Contains(status, "Degraded=True NameTaken") || !strings.Contains(message, "Service/shop") {
		t.Errorf("%s\n%s", status, message)
	}
	world.converge(operator.KindApp, "shop")
	if status, message := world.status(app); status != well {
		t.Errorf("%s\n%s", status, message)
	}
	after := world.versions()
	for name, version := range after {
		if isSubject := strings.HasPrefix(name, "subject/"); !isSubject && before[name] != version {
			t.Errorf("%s was written", name)
		}
	}
	if len(after) < len(before) {
		t.Errorf("%d objects became %d", len(before), len(after))
	}
}
