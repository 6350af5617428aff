package render_test

import (
	"os"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
	"github.com/dunlin-project/dunlin/platform/validate"
)

// appWithRepository returns the case backup-repository with its settings.
func appWithRepository(t *testing.T) (*v1alpha1.App, settings.Settings) {
	t.Helper()
	text, err := os.ReadFile("testdata/cases/backup-repository.yaml")
	if err != nil {
		t.Fatal(err)
	}
	app := validate.File(text)[0].App
	return app, withRepository(t, settings.Settings{}, app.Spec.Backup)
}

// backupPods returns the pods of the CronJobs, by the name of the CronJob.
func backupPods(t *testing.T, app *v1alpha1.App, values settings.Settings) map[string]corev1.PodSpec {
	t.Helper()
	objects, err := render.App(app, values, render.Cluster{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]corev1.PodSpec{}
	for _, object := range objects {
		if cron, isCron := object.(*batchv1.CronJob); isCron {
			found[cron.Name] = cron.Spec.JobTemplate.Spec.Template.Spec
		}
	}
	return found
}

// Apps with the same name in two clusters share a repository: their locks and snapshots are distinct.
func TestOwnersOfBackups(t *testing.T) {
	app, values := appWithRepository(t)
	hosts := map[string]bool{}
	for _, uid := range []string{"0b0e4c1e-6f0b-4b5e-9a53-000000000001", "0b0e4c1e-6f0b-4b5e-9a53-000000000002"} {
		app.UID = types.UID(uid)
		pods := backupPods(t, app, values)
		for name, pod := range pods {
			if hosts[pod.Hostname] || len(pod.Hostname) > 63 {
				t.Errorf("%s has the host name %q", name, pod.Hostname)
			}
			hosts[pod.Hostname] = true
			if !slices.Contains(pod.Containers[0].Command, "--owner="+uid) {
				t.Errorf("%s: %q", name, pod.Containers[0].Command)
			}
		}
		if len(pods) != 2 {
			t.Fatalf("%d CronJobs", len(pods))
		}
	}
}
