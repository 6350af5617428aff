package operator_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// lateReader is a cache that does not have the newest form of an App yet.
type lateReader struct {
	client.Reader
	app *v1alpha1.App
}

func (reader *lateReader) Get(ctx context.Context, name types.NamespacedName, into client.Object, options ...client.GetOption) error {
	app, isApp := into.(*v1alpha1.App)
	if !isApp || reader.app == nil {
		return reader.Reader.Get(ctx, name, into, options...)
	}
	reader.app.DeepCopyInto(app)
	return nil
}

// lossyWriter writes statuses, and does not get the answers.
type lossyWriter struct{ client.Client }

func (writer lossyWriter) Status() client.SubResourceWriter {
	return lossyStatusWriter{writer.Client.Status()}
}

type lossyStatusWriter struct{ client.SubResourceWriter }

func (writer lossyStatusWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	if err := writer.SubResourceWriter.Patch(ctx, object, patch, options...); err != nil {
		return err
	}
	return errInjected
}

// repeatingWriter writes statuses twice, as the transport of the operator does if the first answer is lost.
type repeatingWriter struct {
	client.Client
	// between is called between the two.
	between func(client.Object)
}

func (writer repeatingWriter) Status() client.SubResourceWriter {
	return repeatingStatusWriter{writer.Client.Status(), writer.between}
}

type repeatingStatusWriter struct {
	client.SubResourceWriter
	between func(client.Object)
}

func (writer repeatingStatusWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	first := object.DeepCopyObject().(client.Object)
	if err := writer.SubResourceWriter.Patch(ctx, first, patch, options...); err != nil {
		return err
	}
	writer.between(first)
	return writer.SubResourceWriter.Patch(ctx, object, patch, options...)
}

// TestAStatusThatIsWrittenTwiceIsWritten has the API server refuse the second write, because the first one has changed the resourceVersion.
func TestAStatusThatIsWrittenTwiceIsWritten(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		// change is what somebody else does between the two writes.
		change     func(*v1alpha1.App)
		isConflict bool
	}{
		{"alone", func(*v1alpha1.App) {}, false},
		{"with another change", func(app *v1alpha1.App) { app.Annotations = map[string]string{"example.com/note": "new"} }, false},
		{"with another status", func(app *v1alpha1.App) { app.Status.Conditions = nil }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			world := newWorld(t, "twice-"+strings.ReplaceAll(row.name, " ", "-"))
			world.create(world.app("shop"))
			world.converge("App", "shop")
			world.haveNoReadyPod("shop")
			writer := world.operator.Writer
			world.operator.Writer = repeatingWriter{writer, func(written client.Object) {
				app := written.(*v1alpha1.App)
				row.change(app)
				if row.isConflict {
					if err := world.admin.Status().Update(t.Context(), app); err != nil {
						t.Error(err)
					}
				} else {
					world.update(app)
				}
			}}
			if err := world.pass("App", "shop"); apierrors.IsConflict(err) != row.isConflict || !row.isConflict && err != nil {
				t.Fatal(err)
			}
			world.operator.Writer = writer
			world.calls.reset(0, false)
			err := world.pass("App", "shop")
			if isWritten := len(world.calls.writes) > 0; err != nil || isWritten != row.isConflict {
				t.Errorf("%v, %v", err, world.calls.writes)
			}
		})
	}
}

// haveNoReadyPod has the Deployment of an app say that no pod is ready.
func (world *world) haveNoReadyPod(name string) {
	world.t.Helper()
	var deployment appsv1.Deployment
	if err := world.get(name, &deployment); err != nil {
		world.t.Fatal(err)
	}
	deployment.Status.ReadyReplicas, deployment.Status.AvailableReplicas = 0, 0
	if err := world.admin.Status().Update(world.t.Context(), &deployment); err != nil {
		world.t.Fatal(err)
	}
}

// TestALateCacheKeepsNoOldStatus has a pass compare with a status from before the last write. Nothing asks for another pass when the cache has
// caught up, so the last status has to be right.
func TestALateCacheKeepsNoOldStatus(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		// isAnswerLost is whether the operator knows that the status was written.
		isAnswerLost bool
	}{{"answered", false}, {"unanswered", true}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			world := newWorld(t, "late-"+row.name)
			world.create(world.app("shop"))
			world.converge("App", "shop")
			late := &lateReader{Reader: world.operator.Reader, app: &v1alpha1.App{}}
			if err := world.get("shop", late.app); err != nil {
				t.Fatal(err)
			}
			world.operator.Reader = late

			world.haveNoReadyPod("shop")
			writer, want := world.operator.Writer, error(nil)
			if row.isAnswerLost {
				world.operator.Writer, want = lossyWriter{writer}, errInjected
			}
			if err := world.pass("App", "shop"); !errors.Is(err, want) {
				t.Fatal(err)
			}
			world.operator.Writer = writer
			if status, _ := world.status(&v1alpha1.App{ObjectMeta: late.app.ObjectMeta}); status == well {
				t.Fatal("the status does not say that no pod is ready")
			}
			world.settle("shop")
			if err := world.pass("App", "shop"); err != nil {
				t.Fatal(err)
			}
			if status, message := world.status(&v1alpha1.App{ObjectMeta: late.app.ObjectMeta}); status != well {
				t.Errorf("%s\n%s", status, message)
			}

			// When the cache has caught up, the API server is not asked for the App.
			late.app = nil
			world.calls.reset(0, false)
			if err := world.pass("App", "shop"); err != nil || len(world.calls.writes) > 0 {
				t.Errorf("%v, %v", err, world.calls.writes)
			}
		})
	}
}
