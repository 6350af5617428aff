package operator

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// emptyReader has no object.
type emptyReader struct{ client.Reader }

func (emptyReader) Get(_ context.Context, name types.NamespacedName, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, name.Name)
}

// TestWritesForADeletedAppAreForgotten has writes that the cache did not see before their App was deleted.
func TestWritesForADeletedAppAreForgotten(t *testing.T) {
	t.Parallel()
	operator := &Operator{Reader: emptyReader{}}
	gone := subjectName{KindApp, types.NamespacedName{Namespace: "web", Name: "shop"}}
	other := subjectName{KindDunlin, gone.name}
	for _, subject := range []subjectName{gone, other} {
		operator.recent.add(subject, objectName{"v1", "Service", "shop"}, 7)
		operator.recent.addStatus(subject, unknownVersion)
	}
	if _, err := operator.Pass(t.Context(), gone.kind, gone.name); err != nil {
		t.Fatal(err)
	}
	if len(operator.recent.of(gone)) > 0 || !operator.recent.readStatusAt(gone, 1) {
		t.Error("the writes for the deleted App are kept")
	}
	if len(operator.recent.of(other)) == 0 || operator.recent.readStatusAt(other, 1) {
		t.Error("the writes for another kind are forgotten")
	}
}
