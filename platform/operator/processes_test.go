package operator_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// TestProcesses releases an app with a worker: one migration comes before both, and a worker that does not start is named.
func TestProcesses(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "processes")
	app := world.app("shop")
	app.Spec.Processes = []v1alpha1.Process{{
		Name: "worker", Command: v1alpha1.Command{"shop", "worker"}, Replicas: new(int32(2)), Health: v1alpha1.ProcessHealth{None: "it has no state"},
	}}
	world.create(app)
	world.converge("App", "shop")
	world.expectProcesses(app, v1alpha1.ProcessStatus{Name: "web", Desired: 1, Updated: 1, Ready: 1}, v1alpha1.ProcessStatus{Name: "worker", Desired: 2, Updated: 2, Ready: 2})
	if status, message := world.status(app); status != well {
		t.Fatalf("%s\n%s", status, message)
	}

	world.migrateTo("shop:2")
	world.passes(3)
	jobs := world.migrations()
	if images := world.images(); len(jobs) != 1 || images != "shop:1 shop:1" {
		t.Fatalf("%d migrations; while one runs, the images are %s", len(jobs), images)
	}
	world.endJob(&jobs[0], batchv1.JobComplete, "")
	world.passes(3)
	if images := world.images(); len(world.migrations()) != 1 || images != "shop:2 shop:2" {
		t.Errorf("after the migration, the images are %s", images)
	}
	world.converge("App", "shop")

	// The controller of Deployments gives up the new pods of the worker; the old ones serve.
	var worker appsv1.Deployment
	if err := world.get("shop-process-worker", &worker); err != nil {
		t.Fatal(err)
	}
	worker.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: "False", Reason: "ProgressDeadlineExceeded"}}
	worker.Status.UpdatedReplicas, worker.Status.Replicas = 1, 3
	if err := world.admin.Status().Update(t.Context(), &worker); err != nil {
		t.Fatal(err)
	}
	world.passes(2)
	status, message := world.status(app)
	if !strings.Contains(status, "Degraded=True RolloutStalled") || !strings.HasPrefix(message, "the new pods of the process worker did not become ready in time; ") {
		t.Errorf("%s\n%s", status, message)
	}
	world.expectProcesses(app, v1alpha1.ProcessStatus{Name: "web", Desired: 1, Updated: 1, Ready: 1}, v1alpha1.ProcessStatus{Name: "worker", Desired: 2, Updated: 1, Ready: 2})

	app.Spec.Processes = nil
	world.update(app)
	world.converge("App", "shop")
	if names := world.names("shop"); strings.Contains(names, "worker") {
		t.Errorf("objects of a process that was removed are left: %s", names)
	}
	world.expectProcesses(app)
}

func (world *world) images() string {
	world.t.Helper()
	var images []string
	for _, name := range []string{"shop", "shop-process-worker"} {
		var deployment appsv1.Deployment
		if err := world.get(name, &deployment); err != nil {
			world.t.Fatal(err)
		}
		images = append(images, deployment.Spec.Template.Spec.Containers[0].Image)
	}
	return strings.Join(images, " ")
}

func (world *world) expectProcesses(app *v1alpha1.App, wanted ...v1alpha1.ProcessStatus) {
	world.t.Helper()
	world.status(app)
	isSame := len(app.Status.Processes) == len(wanted)
	for index := range wanted {
		isSame = isSame && app.Status.Processes[index] == wanted[index]
	}
	if !isSame {
		world.t.Errorf("the status has the processes %+v instead of %+v", app.Status.Processes, wanted)
	}
}
