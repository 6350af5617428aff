package command_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/command"
)

// runCollector does what the garbage collector of Kubernetes does for a deletion in the foreground: it deletes what the App owns, and then the App.
func (site *site) runCollector() func() {
	return site.forEach(&v1alpha1.AppList{}, site.collect)
}

func (site *site) collect(ctx context.Context, app client.Object) error {
	if app.GetDeletionTimestamp() == nil {
		return nil
	}
	lists := []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &networkingv1.IngressList{}}
	for _, list := range lists {
		if err := site.admin.List(ctx, list, client.InNamespace("web")); err != nil {
			return err
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			if owner := metav1.GetControllerOf(object); owner == nil || owner.UID != app.GetUID() {
				return nil
			}
			return client.IgnoreNotFound(site.admin.Delete(ctx, object))
		})
		if err != nil {
			return err
		}
	}
	app.SetFinalizers(nil)
	return site.admin.Update(ctx, app)
}

// TestDelete deletes Apps on a real API server, as the role that may.
func TestDelete(t *testing.T) {
	t.Parallel()
	site, _ := deployed(t)
	var app v1alpha1.App
	site.asIdentity("reader")
	_, stderr := site.roost(command.ExitFailed, "delete", "-n", "web", "shop", "--yes")
	contains(t, stderr, "ask an administrator for the ClusterRole roost-identity-operator in that namespace")
	site.asIdentity("operator")
	out, stderr := site.roost(command.ExitFound, "delete", "-n", "web", "shop")
	contains(t, out, "deletes: App web/shop\n", "deletes: Deployment shop\n", "deletes: Ingress shop\n", "deletes: Service shop\n")
	contains(t, stderr, "nothing is deleted; repeat the command with --yes")
	site.get("shop", &app)
	if app.DeletionTimestamp != nil {
		t.Fatal("the App is being deleted without --yes")
	}

	// Nobody collects the objects, so the App stays. A second command waits for the same deletion.
	_, stderr = site.roost(command.ExitFailed, "delete", "-n", "web", "shop", "--yes", "--wait", "1s")
	contains(t, stderr, "App web/shop is being deleted: after 1s, it still has the finalizers foregroundDeletion; `kubectl -n web get all -l apps.roost.dev/app=shop`")
	stopCollector := site.runCollector()
	out, _ = site.roost(command.ExitFine, "delete", "-n", "web", "shop", "--yes")
	contains(t, out, "deleted: App web/shop\n", "deleted: Deployment shop\n")
	for name, object := range map[string]client.Object{"App": &app, "Deployment": &appsv1.Deployment{}, "Service": &corev1.Service{}} {
		if err := site.admin.Get(t.Context(), client.ObjectKey{Namespace: "web", Name: "shop"}, object); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stopCollector()
	site.deleteWhatStays()
	site.refuses([]refusal{
		{command.ExitFailed, "delete -n web none --yes", "there is no App and no Dunlin none in the namespace web"},
		{command.ExitUsage, "delete shop --yes --wait -1s", "--wait is -1s; write a duration such as 5m, or 0 to wait for nothing"},
		{command.ExitUsage, "delete --yes", "there are 0 arguments; name one App or Dunlin"},
	})
}

// deleteWhatStays has Apps with volumes and with the policy Orphan, which the operator does not know.
func (site *site) deleteWhatStays() {
	t := site.t
	t.Helper()
	app := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "database"}}
	app.Spec = v1alpha1.AppSpec{
		Image: "database:1", Health: v1alpha1.Health{ProcessHealth: v1alpha1.ProcessHealth{Command: v1alpha1.Command{"true"}}}, DeletionPolicy: v1alpha1.DeletionPolicyOrphan,
		Volumes: []v1alpha1.Volume{{Name: "data", Path: "/data", Size: new(resource.MustParse("1Gi"))}},
		Backup:  &v1alpha1.Backup{Schedule: "30 4 * * *", Repository: &v1alpha1.Repository{Claim: "backups", File: "backup.env"}},
	}
	if err := site.admin.Create(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the operator has seen the App", func() bool {
		site.get("database", app)
		return app.Status.ObservedGeneration == app.Generation
	})
	out, _ := site.roost(command.ExitFound, "delete", "-n", "web", "database", "-o", "json")
	var made struct {
		Kind, Namespace, Name string
		Deleted               *bool
		Objects, Kept         []string
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Kind+made.Namespace+made.Name != "Appwebdatabase" || made.Deleted == nil || *made.Deleted {
		t.Errorf("%v, %s", err, out)
	}
	kept := strings.Join(made.Kept, "\n")
	contains(t, kept, "kubectl -n web get persistentvolumeclaims -l apps.roost.dev/app=database", "the snapshots in its repository of backups")
	if len(made.Objects) > 0 {
		t.Errorf("%v would be deleted in spite of the policy", made.Objects)
	}
	if err := site.admin.Delete(t.Context(), app); err != nil {
		t.Fatal(err)
	}
}
