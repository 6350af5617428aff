package command

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/operator"
)

// TestAPolicyThatIsNotAppliedYetStopsADeletion has an App whose objects Kubernetes would delete although its spec says that they stay.
func TestAPolicyThatIsNotAppliedYetStopsADeletion(t *testing.T) {
	for _, row := range []struct {
		policy   string
		observed int64
		isGone   bool
		out      string
	}{
		{"", 1, true, "deleted: App web/shop\ndeleted: Deployment shop\n"},
		{v1alpha1.DeletionPolicyDelete, 2, true, "deleted: App web/shop\ndeleted: Deployment shop\n"},
		{v1alpha1.DeletionPolicyOrphan, 1, false, ""},
		{v1alpha1.DeletionPolicyOrphan, 2, true, "deleted: App web/shop\nstays: Deployment shop\n"},
	} {
		app := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "uid-of-app", Generation: 2}}
		app.Spec.DeletionPolicy, app.Status.ObservedGeneration = row.policy, row.observed
		app.Status.Inventory = []v1alpha1.ObjectRef{{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop"}}
		server := &cluster{Client: fake.NewClientBuilder().WithScheme(operator.NewScheme()).WithObjects(app).Build()}
		var out bytes.Buffer
		err := (&program{Surroundings: Surroundings{Out: &out}}).delete(t.Context(), server, app, time.Minute)
		if (err == nil) != row.isGone || err != nil && !strings.Contains(err.Error(), "its objects may be deleted in spite of deletionPolicy: Orphan") || out.String() != row.out {
			t.Errorf("%q, %d: %v, %q", row.policy, row.observed, err, out.String())
		}
		if err := server.Get(t.Context(), client.ObjectKeyFromObject(app), &v1alpha1.App{}); (err != nil) != row.isGone {
			t.Errorf("%q, %d: %v", row.policy, row.observed, err)
		}
	}
}
