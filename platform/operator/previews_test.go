package operator_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/operator"
)

// clock is a time that the test sets. The server's own clock decides nothing, because the operator does not ask for it without ServerNow.
type clock struct{ now time.Time }

func (world *world) withClock() *clock {
	clock := &clock{time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	world.operator.Now = func() time.Time { return clock.now }
	return clock
}

func (world *world) preview(name, of string, expires time.Time) *v1alpha1.App {
	app := world.app(name)
	app.Spec.Preview = &v1alpha1.Preview{Of: of, Expires: v1alpha1.ExpiryText(expires)}
	return app
}

// passIn makes a pass, and returns the pause until the next one.
func (world *world) passIn(name string) time.Duration {
	world.t.Helper()
	pause, err := world.operator.Pass(world.t.Context(), "App", types.NamespacedName{Namespace: world.namespace, Name: name})
	if err != nil {
		world.t.Fatal(err)
	}
	return pause
}

func (world *world) isGone(name string) bool {
	world.t.Helper()
	err := world.get(name, &v1alpha1.App{})
	if err != nil && !apierrors.IsNotFound(err) {
		world.t.Fatal(err)
	}
	return err != nil
}

// TestAPreviewExpires runs a preview by a clock of the test, with an operator that starts anew in between.
func TestAPreviewExpires(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "previews")
	clock := world.withClock()
	recorder := record.NewFakeRecorder(100)
	world.operator.Recorder = recorder
	ends := clock.now.Add(72 * time.Hour)
	app := world.preview("shop-pr-1", "shop", ends)
	world.create(app)
	world.converge("App", app.Name)
	if text, _ := world.status(app); !strings.Contains(text, "Expiring=False ExpiresLater") || !strings.Contains(text, "Ready=True") {
		t.Fatal(text)
	}
	if pause := world.passIn(app.Name); pause != time.Hour {
		t.Errorf("the next look at the clock is in %s", pause)
	}

	clock.now = ends.Add(-time.Hour - 90*time.Second)
	if pause := world.passIn(app.Name); pause != 90*time.Second {
		t.Errorf("%s", pause)
	}
	clock.now = ends.Add(-time.Hour)
	world.passIn(app.Name)
	if text, _ := world.status(app); !strings.Contains(text, "Expiring=True ExpiresSoon") {
		t.Error(text)
	}

	// A new operator knows only what the API server knows.
	before := world.operator
	world.operator = &operator.Operator{
		Reader: before.Reader, Live: before.Live, Writer: before.Writer, Namespaces: before.Namespaces, IdentityFile: before.IdentityFile,
		Recorder: recorder, Now: before.Now,
	}
	clock.now = ends.Add(-time.Second)
	if pause := world.passIn(app.Name); pause != time.Second || world.isGone(app.Name) {
		t.Errorf("%s", pause)
	}
	clock.now = ends
	world.passIn(app.Name)
	if !world.isGone(app.Name) {
		t.Error("the preview is still there")
	}
	close(recorder.Events)
	var events []string
	for event := range recorder.Events {
		events = append(events, event)
	}
	text := strings.Join(events, "\n")
	for _, event := range []string{
		"Warning ExpiresSoon this preview of shop is deleted at 2026-12-03T12:00:00Z; deploy it again to extend it",
		"Normal Expired this preview of shop has expired at 2026-12-03T12:00:00Z",
	} {
		if strings.Count(text, event) != 1 {
			t.Errorf("%q is not there once:\n%s", event, text)
		}
	}
	for _, object := range world.list("Deployment", app.Name) {
		// The garbage collector, which does not run here, deletes what has an owner.
		if owner := metav1.GetControllerOf(object); owner == nil || owner.UID != app.UID {
			t.Errorf("%s has the owner %v", object.GetName(), owner)
		}
	}
}

// TestAClockThatIsAheadDeletesNothing has an operator whose clock is an hour ahead of the API server's.
func TestAClockThatIsAheadDeletesNothing(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "previews-ahead")
	clock := world.withClock()
	server := clock.now
	app := world.preview("shop-pr-10", "shop", clock.now.Add(time.Hour))
	world.create(app)
	world.converge("App", app.Name)
	world.operator.ServerNow = func(context.Context) (time.Time, error) { return server, nil }
	clock.now = clock.now.Add(time.Hour)
	if pause := world.passIn(app.Name); pause != time.Minute || world.isGone(app.Name) {
		t.Errorf("%s", pause)
	}
	if text, _ := world.status(app); !strings.Contains(text, "Expiring=True ClockWrong") || !strings.Contains(text, "Ready=True") {
		t.Error(text)
	}
	server = clock.now.Add(-time.Minute - time.Second)
	if world.passIn(app.Name); world.isGone(app.Name) {
		t.Error("the preview is deleted before its time")
	}
	server = clock.now.Add(-time.Minute)
	world.passIn(app.Name)
	if !world.isGone(app.Name) {
		t.Error("the preview is still there")
	}
}

// TestTheTimeOfTheServer asks for it with the rights of the operator.
func TestTheTimeOfTheServer(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "previews-time")
	found, err := operator.ServerTime(world.operator.Writer)(t.Context())
	if difference := time.Since(found).Abs(); err != nil || difference > time.Minute {
		t.Errorf("%s, %v", found, err)
	}
}

// TestAnExtendedPreviewStays extends a preview: no pod restarts, no migration runs, and an operator that still has the earlier version deletes nothing.
func TestAnExtendedPreviewStays(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "previews-extended")
	clock := world.withClock()
	ends := clock.now.Add(time.Hour)
	app := world.preview("shop-pr-2", "shop", ends)
	app.Spec.Migrate = &v1alpha1.Migration{Command: v1alpha1.Command{"migrate"}}
	world.create(app)
	world.converge("App", app.Name)
	names := world.names(app.Name)
	if err := world.get(app.Name, app); err != nil {
		t.Fatal(err)
	}
	direct := world.operator.Reader
	late := &lateReader{direct, app.DeepCopy()}

	app.Spec.Preview.Expires = v1alpha1.ExpiryText(ends.Add(time.Hour))
	world.update(app)
	world.converge("App", app.Name)
	if after := world.names(app.Name); after != names {
		t.Errorf("%s\nbefore: %s", after, names)
	}

	clock.now = ends
	world.operator.Reader, world.operator.Live = late, late
	err := world.pass("App", app.Name)
	if !apierrors.IsConflict(err) || world.isGone(app.Name) {
		t.Errorf("%v", err)
	}
	world.operator.Reader, world.operator.Live = direct, direct
	world.passIn(app.Name)
	if world.isGone(app.Name) {
		t.Error("the preview is deleted before its time")
	}
	clock.now = ends.Add(time.Hour)
	world.passIn(app.Name)
	if !world.isGone(app.Name) {
		t.Error("the preview is still there")
	}
}

// TestAPreviewHasNoHostOfAnotherApp has a preview with a host first, and then an App that claims it.
func TestAPreviewHasNoHostOfAnotherApp(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "previews-hosts")
	clock := world.withClock()
	preview := world.preview("shop-pr-3", "shop", clock.now.Add(time.Hour))
	preview.Spec.Host = "shop.example.com"
	world.create(preview)
	world.converge("App", preview.Name)
	if len(world.list("Ingress", preview.Name)) != 1 {
		t.Fatal("the preview does not serve its host")
	}
	app := world.app("shop")
	app.Spec.Host = "shop.example.com"
	world.create(app)
	world.converge("App", "shop")
	if text, message := world.status(app); !strings.Contains(text, "Ready=True") {
		t.Error(text, message)
	}
	world.converge("App", preview.Name)
	if text, message := world.status(preview); !strings.Contains(text, "Degraded=True HostTaken") || !strings.Contains(message, "App previews-hosts/shop") {
		t.Error(text, message)
	}
	var list networkingv1.IngressList
	if err := world.admin.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var served []string
	for index := range list.Items {
		if list.Items[index].Namespace == world.namespace {
			served = append(served, list.Items[index].Name)
		}
	}
	if !slices.Equal(served, []string{"shop"}) {
		t.Errorf("%v", served)
	}
}

// TestABlockedPreviewGivesUpItsHost has an App claim the host of a preview, and only the preview reconciled.
func TestABlockedPreviewGivesUpItsHost(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "previews-given-up")
	clock := world.withClock()
	preview := world.preview("shop-pr-8", "shop", clock.now.Add(time.Hour))
	preview.Spec.Host = "shop.example.com"
	world.create(preview)
	world.converge("App", preview.Name)
	app := world.app("shop")
	app.Spec.Host = "shop.example.com"
	world.create(app)
	world.converge("App", preview.Name)
	if served := world.list("Ingress", preview.Name); len(served) != 0 {
		t.Errorf("%v", served)
	}
}

// TestAnInvalidPreviewExpires has a preview that is never applied.
func TestAnInvalidPreviewExpires(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "previews-invalid")
	clock := world.withClock()
	app := world.preview("shop-pr-9", "shop", clock.now.Add(time.Hour))
	app.Spec.PodPatch = &v1alpha1.PodPatch{Template: &runtime.RawExtension{Raw: []byte(`{"spec": {"nodeName": "a"}}`)}}
	world.create(app)
	world.converge("App", app.Name)
	if text, message := world.status(app); !strings.Contains(text, "Degraded=True SpecInvalid") {
		t.Fatal(text, message)
	}
	clock.now = clock.now.Add(time.Hour)
	world.passIn(app.Name)
	if !world.isGone(app.Name) {
		t.Error("the preview is still there")
	}
}

// TestTheServerKeepsPreviewsAndAppsApart checks that nobody who can only change an App can have the operator delete it.
func TestTheServerKeepsPreviewsAndAppsApart(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "previews-kept")
	clock := world.withClock()
	app := world.app("shop-pr-4")
	world.create(app)
	app.Spec.Preview = &v1alpha1.Preview{Of: "shop", Expires: v1alpha1.ExpiredAlready}
	if err := world.admin.Update(t.Context(), app); err == nil || !strings.Contains(err.Error(), "an App cannot become a preview or stop being one") {
		t.Errorf("%v", err)
	}
	preview := world.preview("shop-pr-5", "shop", clock.now.Add(time.Hour))
	world.create(preview)
	preview.Spec.Preview = nil
	if err := world.admin.Update(t.Context(), preview); err == nil || !strings.Contains(err.Error(), "an App cannot become a preview or stop being one") {
		t.Errorf("%v", err)
	}
	// The App shop-pr with --as 5 would have the same name.
	preview.Spec.Preview = &v1alpha1.Preview{Of: "shop-pr", Expires: v1alpha1.ExpiryText(clock.now.Add(time.Hour))}
	if err := world.admin.Update(t.Context(), preview); err == nil || !strings.Contains(err.Error(), "cannot change to another App; choose another --as") {
		t.Errorf("%v", err)
	}
}

// TestAPreviewLivesForThirtyDays has a preview at the maximum, with the skew of clocks that is allowed, and one past it.
func TestAPreviewLivesForThirtyDays(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "previews-long")
	clock := world.withClock()
	longest := clock.now.Add(v1alpha1.PreviewMax + time.Hour)
	for name, row := range map[string]struct {
		ends time.Time
		want string
	}{
		"shop-pr-6": {longest, "Degraded=False"},
		"shop-pr-7": {longest.Add(time.Second), "Degraded=True ExpiresTooFar"},
	} {
		app := world.preview(name, "shop", row.ends)
		world.create(app)
		world.converge("App", name)
		text, message := world.status(app)
		if !strings.Contains(text, row.want) || strings.Contains(row.want, "True") && !strings.Contains(message, "is more than 30 days away; deploy it with --expires of at most 720h") {
			t.Errorf("%s: %s: %s", name, text, message)
		}
	}
	for name, row := range map[string]struct{ expires, reason string }{
		"shop-pr-11": {"9999-12-31T23:59:59Z", "ExpiresTooFar"},
		"shop-pr-12": {"2027-02-30T00:00:00Z", "ExpiresUnreadable"},
	} {
		world.endsThoughRefused(clock, name, row.expires, row.reason)
	}
}

// endsThoughRefused has a preview that was degraded for longer than a preview lives, and then sets its time to one that is refused: it is deleted neither at
// once nor never.
func (world *world) endsThoughRefused(clock *clock, name, expires, reason string) {
	t := world.t
	t.Helper()
	// The API server does not check a patch of pods.
	wrong := &v1alpha1.PodPatch{Template: &runtime.RawExtension{Raw: []byte(`{"spec": {"nodeName": "a"}}`)}}
	app := world.preview(name, "shop", clock.now.Add(v1alpha1.PreviewMax))
	app.Spec.PodPatch = wrong
	world.create(app)
	world.converge("App", name)
	clock.now = clock.now.Add(v1alpha1.PreviewMax - time.Hour)
	world.setExpires(app, v1alpha1.ExpiryText(clock.now.Add(v1alpha1.PreviewMax)), "SpecInvalid")
	clock.now = clock.now.Add(2 * time.Hour)
	world.setExpires(app, expires, reason)
	clock.now = clock.now.Add(v1alpha1.PreviewMax - time.Second)
	if world.passIn(name); world.isGone(name) {
		t.Errorf("%s: the preview is deleted before its time", name)
	}
	clock.now = clock.now.Add(time.Second)
	if world.passIn(name); !world.isGone(name) {
		t.Errorf("%s: the preview is still there", name)
	}
}

// setExpires sets the time of a preview, and checks why it is degraded then.
func (world *world) setExpires(app *v1alpha1.App, expires, reason string) {
	world.t.Helper()
	if err := world.get(app.Name, app); err != nil {
		world.t.Fatal(err)
	}
	app.Spec.Preview.Expires = expires
	world.update(app)
	world.converge("App", app.Name)
	if text, message := world.status(app); !strings.Contains(text, "Degraded=True "+reason) {
		world.t.Fatalf("%s: %s: %s", app.Name, text, message)
	}
}

// TestAnAppWhoseNameAPreviewHas names the preview, and takes the name when the preview has ended.
func TestAnAppWhoseNameAPreviewHas(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "previews-named")
	clock := world.withClock()
	preview := world.preview("shop-pr-13", "shop", clock.now.Add(time.Hour))
	preview.Spec.Processes = []v1alpha1.Process{{Name: "worker", Command: v1alpha1.Command{"work"}, Health: v1alpha1.ProcessHealth{None: "it has no state"}}}
	world.create(preview)
	world.converge("App", preview.Name)
	app := world.app("shop-pr-13-process-worker")
	world.create(app)
	world.converge("App", app.Name)
	text, message := world.status(app)
	want := "; rename or delete them. The preview shop-pr-13 has some of them until " + preview.Spec.Preview.Expires + "; delete it with `roost deploy --as SUFFIX --delete` to have them now"
	if !strings.Contains(text, "Degraded=True NameTaken") || !strings.Contains(message, "Deployment/shop-pr-13-process-worker") || !strings.HasSuffix(message, want) {
		t.Errorf("%s: %s", text, message)
	}
}
