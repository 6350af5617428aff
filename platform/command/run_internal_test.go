package command

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// TestARunOfAnAppWhoseObjectsStay makes the Job from a Deployment whose owner is in an annotation, as with deletionPolicy: Orphan.
func TestARunOfAnAppWhoseObjectsStay(t *testing.T) {
	app := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "uid-of-app"}}
	for owner, isOwn := range map[string]bool{"App/uid-of-app": true, "App/uid-of-another": false, "": false} {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}}
		deployment.Annotations = map[string]string{reconcile.AnnotationOwner: owner}
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "shop:1"}}
		server := &cluster{Client: fake.NewClientBuilder().WithScheme(operator.NewScheme()).WithObjects(app, deployment).Build()}
		job, err := server.oneOff(t.Context(), "shop", runQuery{podQuery: podQuery{namespace: "web"}, timeout: time.Hour, command: []string{"reindex"}})
		if (err == nil) != isOwn {
			t.Errorf("%q: %v", owner, err)
		}
		if isOwn && (len(job.OwnerReferences) != 1 || job.OwnerReferences[0].UID != app.UID) {
			t.Errorf("%+v", job.OwnerReferences)
		}
	}
}
