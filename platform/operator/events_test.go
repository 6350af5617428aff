package operator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/operator"
)

// recordEvents makes the operator write events with its own rights.
func (world *world) recordEvents() {
	world.t.Helper()
	server, _ := server(world.t)
	recorder, stop, err := operator.NewRecorder(rest.CopyConfig(server.AsOperator()))
	if err != nil {
		world.t.Fatal(err)
	}
	world.t.Cleanup(stop)
	world.operator.Recorder = recorder
}

// events returns the events of the operator. The API server also writes events, for example when it repairs the address of a Service.
func (world *world) events() []corev1.Event {
	world.t.Helper()
	var list corev1.EventList
	if err := world.admin.List(world.t.Context(), &list, client.InNamespace(world.namespace)); err != nil {
		world.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(event corev1.Event) bool { return event.Source.Component != "roost-operator" })
}

// waitForEvent returns when there is an event with the type, the reason and a part of the message.
func (world *world) waitForEvent(kind, reason, part string) {
	world.t.Helper()
	var seen []string
	defer func() {
		if world.t.Failed() {
			world.t.Logf("events:\n%s", strings.Join(seen, "\n"))
		}
	}()
	wait(world.t, fmt.Sprintf("%s %s %q", kind, reason, part), func() bool {
		seen = nil
		for _, event := range world.events() {
			if event.Type == kind && event.Reason == reason && strings.Contains(event.Message, part) {
				return true
			}
			seen = append(seen, fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Message))
		}
		return false
	})
}

func (world *world) deleteService(name string) {
	world.t.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: world.namespace}}
	if err := world.admin.Delete(world.t.Context(), service); err != nil {
		world.t.Fatal(err)
	}
}

// TestEvents writes each kind of event to a real API server.
func TestEvents(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "events")
	world.recordEvents()
	app := world.app("shop")
	world.files(app, "TOKEN=c4n4ry\n")
	world.create(app)
	world.converge("App", "shop")
	first := world.revisionOf(app)
	world.waitForEvent(corev1.EventTypeNormal, "ReleaseStarted", "revision "+first)
	world.waitForEvent(corev1.EventTypeNormal, "RolledOut", "revision "+first+": all objects match the spec")

	world.deleteService("shop")
	world.converge("App", "shop")
	world.waitForEvent(corev1.EventTypeNormal, "DriftUndone", "Service/shop")

	good := app.Annotations
	world.switchFiles(app, world.written("shop", "shop.env", strings.Replace(world.sealed("TOKEN=c4n4ry\nB=b\n", world.identity), "B=", "C=", 1)))
	world.converge("App", "shop")
	world.waitForEvent(corev1.EventTypeWarning, "SettingsUnreadable", "restore the file from Git")
	world.setRelease(app, "shop:1", good)
	world.waitForEvent(corev1.EventTypeNormal, "Recovered", "no longer SettingsUnreadable")

	world.setRelease(app, "shop:2", good)
	world.waitForEvent(corev1.EventTypeNormal, "RolledOut", "revision "+world.revisionOf(app))
	world.setRelease(app, "shop:1", good)
	world.waitForEvent(corev1.EventTypeNormal, "RollbackStarted", "back to revision "+first)

	world.failPod("shop", "panic: no database\n")
	world.converge("App", "shop")
	world.waitForEvent(corev1.EventTypeWarning, "PodFailing", "shop-1: CrashLoopBackOff: exit code 3: panic: no database")

	for _, event := range world.events() {
		if event.InvolvedObject.Kind != "App" || event.InvolvedObject.Name != "shop" {
			t.Errorf("%+v", event)
		}
		if strings.Contains(event.Message, "c4n4ry") {
			t.Errorf("a value is in an event: %s", event.Message)
		}
	}
}

func (world *world) revisionOf(app *v1alpha1.App) string {
	world.t.Helper()
	if err := world.get(app.Name, app); err != nil || app.Status.Revision == "" {
		world.t.Fatalf("%v: revision %q", err, app.Status.Revision)
	}
	return app.Status.Revision
}

func (world *world) setRelease(app *v1alpha1.App, image string, annotations map[string]string) {
	world.t.Helper()
	if err := world.get(app.Name, app); err != nil {
		world.t.Fatal(err)
	}
	app.Spec.Image, app.Annotations = image, annotations
	world.update(app)
	world.converge("App", app.Name)
}

// TestEventsAreLimited causes more drift than the limit of events.
func TestEventsAreLimited(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "many-events")
	world.recordEvents()
	app := world.app("shop")
	world.create(app)
	world.converge("App", "shop")
	const drifts = operator.EventsBurst + 6
	for range drifts {
		world.deleteService("shop")
		// The first pass writes, the second one finds nothing to do.
		for range 2 {
			if err := world.pass("App", "shop"); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Another app's event is written after those of the first one.
	world.create(world.app("other"))
	world.converge("App", "other")
	wait(t, "an event of the other app", func() bool {
		return slices.ContainsFunc(world.events(), func(event corev1.Event) bool { return event.InvolvedObject.Name == "other" })
	})
	total := 0
	for _, event := range world.events() {
		if event.InvolvedObject.Name == "shop" {
			total += int(event.Count)
		}
	}
	if total < operator.EventsBurst || total >= drifts {
		t.Errorf("%d events for %d changes", total, drifts)
	}
}
