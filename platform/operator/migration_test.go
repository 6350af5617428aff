package operator_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// TestAMigrationGatesTheRollout writes the states of the migration's Job, as the Job controller does. The pods change only after it has succeeded.
func TestAMigrationGatesTheRollout(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "migration")
	app := world.app("shop")
	world.create(app)
	world.converge("App", "shop")
	before := world.template("shop")

	world.migrateTo("shop:2")
	world.passes(3)
	job := world.migrations()[0]
	world.expectGate("while it runs", before, "Progressing=True Migrating", "Ready=True", "Degraded=False")
	if deadline := job.Spec.ActiveDeadlineSeconds; deadline == nil || *deadline != 600 {
		t.Errorf("the Job may run for %v", deadline)
	}

	world.endJob(&job, batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
	world.passes(3)
	world.expectGate("after its deadline", before, "Degraded=True MigrationFailed", "Ready=True", "Progressing=False")
	if jobs := world.migrations(); len(jobs) != 1 || jobs[0].UID != job.UID {
		t.Errorf("a failed migration is run again: %v", jobs)
	}

	// A person has mended the database, and has the same revision migrate once more.
	if err := world.admin.Delete(t.Context(), &job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	world.passes(3)
	again := world.migrations()[0]
	if again.Name != job.Name || again.UID == job.UID {
		t.Errorf("%s instead of %s", again.Name, job.Name)
	}
	world.expectGate("while it runs again", before, "Progressing=True Migrating")
	world.endJob(&again, batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
	world.passes(3)
	world.expectGate("after it has failed again", before, "Degraded=True MigrationFailed", "Ready=True")

	world.migrateTo("shop:3")
	world.passes(3)
	jobs := world.migrations()
	if len(jobs) != 2 {
		t.Fatalf("%d migrations of two revisions", len(jobs))
	}
	world.expectGate("while the next revision migrates", before, "Progressing=True Migrating")
	for index := range jobs {
		if jobs[index].UID != again.UID {
			world.endJob(&jobs[index], batchv1.JobComplete, "")
		}
	}
	world.passes(3)
	if equality.Semantic.DeepEqual(world.template("shop"), before) {
		t.Error("the pods do not change though the migration has succeeded")
	}
	world.converge("App", "shop")
	if status, message := world.status(app); status != well {
		t.Errorf("%s\n%s", status, message)
	}
	count := len(world.migrations())
	if world.converge("App", "shop"); len(world.migrations()) != count {
		t.Error("a revision that serves migrates again")
	}
}

func (world *world) migrateTo(image string) {
	world.t.Helper()
	var app v1alpha1.App
	if err := world.get("shop", &app); err != nil {
		world.t.Fatal(err)
	}
	app.Spec.Image, app.Spec.Migrate = image, &v1alpha1.Migration{Command: v1alpha1.Command{"migrate"}}
	world.update(&app)
}

// passes makes passes with an operator that restarts each time. No controller ends Jobs.
func (world *world) passes(count int) {
	world.t.Helper()
	for range count {
		if err := world.pass("App", "shop"); err != nil {
			world.t.Fatal(err)
		}
	}
}

func (world *world) migrations() []batchv1.Job {
	world.t.Helper()
	var jobs batchv1.JobList
	if err := world.admin.List(world.t.Context(), &jobs, client.InNamespace(world.namespace)); err != nil {
		world.t.Fatal(err)
	}
	if len(jobs.Items) == 0 {
		world.t.Fatal("there is no migration")
	}
	return jobs.Items
}

// expectGate checks that the old pods stay, and checks parts of the conditions.
func (world *world) expectGate(when string, before any, parts ...string) {
	world.t.Helper()
	if !equality.Semantic.DeepEqual(world.template("shop"), before) {
		world.t.Errorf("%s, the pods change", when)
	}
	status, message := world.status(&v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for _, part := range parts {
		if !strings.Contains(status, part) {
			world.t.Errorf("%s: %s is not in %s\n%s", when, part, status, message)
		}
	}
}

// endJob writes the conditions that the API server requires of an ended Job.
func (world *world) endJob(job *batchv1.Job, end batchv1.JobConditionType, reason string) {
	world.t.Helper()
	now := metav1.Now()
	first := batchv1.JobFailureTarget
	job.Status.StartTime = &now
	if end == batchv1.JobComplete {
		first, job.Status.CompletionTime, job.Status.Succeeded = batchv1.JobSuccessCriteriaMet, &now, 1
	} else {
		job.Status.Failed = 1
	}
	for _, kind := range []batchv1.JobConditionType{first, end} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: now,
		})
	}
	if err := world.admin.Status().Update(world.t.Context(), job); err != nil {
		world.t.Fatal(err)
	}
}
