package operator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/operator"
)

const driftSecondsMax = 5

// drift is a change of an object by another client, and the check that the operator has reverted it.
type drift struct {
	kind, name string
	// path of a field, and another value.
	path  []string
	value any
	// by is the kind of client.
	by string
}

// TestDriftIsUndoneInTime runs the operator, while other clients change and delete its objects: with a patch, as `kubectl edit` does,
// with an update of the whole object, as `kubectl replace` does, and with a server-side apply that takes the fields over.
func TestDriftIsUndoneInTime(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "drifts")
	app := world.app("shop")
	world.files(app, "LOG_LEVEL=info\nTOKEN=one\n")
	app.Spec.Host = "shop.example.com"
	world.create(app)
	dunlin := world.clustered("rt")
	dunlin.Spec.Host = "rt.example.com"
	world.create(dunlin)
	world.runOperator()
	world.waitUntilWell(2)

	longest := time.Duration(0)
	count := 0
	for _, name := range []string{"shop", "rt"} {
		for kind := range versions {
			for _, object := range world.list(kind, name) {
				longest = max(longest, world.undone(kind, object, func() { world.deleteOne(kind, object.GetName()) }))
				count++
			}
		}
	}
	// The manager of a release is no operator: what it changes in an owned object is drift as well.
	for _, drift := range []drift{
		{"Deployment", "shop", []string{"spec", "replicas"}, int64(7), "patch"},
		{"Deployment", "shop", []string{"spec", "replicas"}, int64(0), "update"},
		{"Deployment", "shop", []string{"spec", "revisionHistoryLimit"}, int64(1), "apply"},
		{"Service", "shop", []string{"spec", "selector"}, map[string]any{"app": "other"}, "update"},
		{"Ingress", "shop", []string{"spec", "ingressClassName"}, "other", "patch"},
		{"NetworkPolicy", "shop", []string{"spec", "ingress"}, []any{map[string]any{}}, "apply"},
		{"PodDisruptionBudget", "shop", []string{"spec", "maxUnavailable"}, "100%", "patch"},
		{"StatefulSet", "rt", []string{"spec", "replicas"}, int64(1), "apply"},
		{"StatefulSet", "rt-nats", []string{"spec", "replicas"}, int64(0), "update"},
		{"NetworkPolicy", "rt-nats", []string{"spec", "egress"}, []any{map[string]any{}}, "patch"},
	} {
		object := world.object(drift.kind, drift.name)
		took := world.undone(drift.kind, object, func() { world.change(object, drift) })
		longest = max(longest, took)
		count++
	}
	t.Logf("%d changes and deletions were undone, each within %s", count, longest.Round(time.Millisecond))
}

// undone returns how long an object differs from what it was.
func (world *world) undone(kind string, before *unstructured.Unstructured, spoil func()) time.Duration {
	world.t.Helper()
	world.settleBesideOperator()
	want := world.object(kind, before.GetName())
	spoil()
	begin := time.Now()
	wait(world.t, kind+"/"+before.GetName()+" is as before", func() bool {
		found := &unstructured.Unstructured{}
		found.SetAPIVersion(versions[kind])
		found.SetKind(kind)
		err := world.admin.Get(world.t.Context(), types.NamespacedName{Namespace: world.namespace, Name: before.GetName()}, found)
		return err == nil && found.GetDeletionTimestamp() == nil && found.GetResourceVersion() != want.GetResourceVersion() && isCovered(found, want)
	})
	took := time.Since(begin)
	if took > driftSecondsMax*time.Second {
		world.t.Errorf("%s/%s was undone after %s, more than %d s", kind, before.GetName(), took, driftSecondsMax)
	}
	return took
}

// isCovered reports whether an object contains all fields of the earlier one. The server adds addresses to a Service.
func isCovered(found, want *unstructured.Unstructured) bool {
	for _, field := range []string{"spec", "data", "immutable"} {
		first, second := normal(found.Object[field]), normal(want.Object[field])
		if first != second {
			return false
		}
	}
	return true
}

func normal(field any) string {
	table, isTable := field.(map[string]any)
	if !isTable {
		return fmt.Sprint(field)
	}
	copied := map[string]any{}
	for name, value := range table {
		if name != "clusterIP" && name != "clusterIPs" {
			copied[name] = value
		}
	}
	return fmt.Sprint(copied)
}

func (world *world) object(kind, name string) *unstructured.Unstructured {
	world.t.Helper()
	found := &unstructured.Unstructured{}
	found.SetAPIVersion(versions[kind])
	found.SetKind(kind)
	if err := world.admin.Get(world.t.Context(), types.NamespacedName{Namespace: world.namespace, Name: name}, found); err != nil {
		world.t.Fatalf("%s/%s: %v", kind, name, err)
	}
	return found
}

// change changes a field as another client.
func (world *world) change(object *unstructured.Unstructured, drift drift) {
	world.t.Helper()
	changed := &unstructured.Unstructured{Object: map[string]any{}}
	if drift.by != "apply" {
		changed = world.object(drift.kind, drift.name)
	}
	changed.SetAPIVersion(object.GetAPIVersion())
	changed.SetKind(drift.kind)
	changed.SetNamespace(world.namespace)
	changed.SetName(drift.name)
	base := changed.DeepCopy()
	if err := unstructured.SetNestedField(changed.Object, drift.value, drift.path...); err != nil {
		world.t.Fatal(err)
	}
	var err error
	switch drift.by {
	case "patch":
		err = world.admin.Patch(world.t.Context(), changed, client.MergeFrom(base), client.FieldOwner("kubectl-edit"))
	case "update":
		err = world.admin.Update(world.t.Context(), changed, client.FieldOwner("kubectl-replace"))
	default:
		err = world.admin.Apply(world.t.Context(), client.ApplyConfigurationFromUnstructured(changed), client.FieldOwner("kubectl"), client.ForceOwnership)
	}
	if err != nil {
		world.t.Fatalf("%s of %s/%s: %v", drift.by, drift.kind, drift.name, err)
	}
}

// runOperator runs an operator in this process until the test ends.
func (world *world) runOperator() {
	world.t.Helper()
	server, _ := server(world.t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(ctx, server.AsOperator(), operator.Options{
			Namespaces: []string{world.namespace}, IdentityFile: world.operator.IdentityFile, HealthAddress: "0", MetricsAddress: "0", Log: logr.Discard(),
		})
	}()
	world.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			world.t.Errorf("the operator has ended: %v", err)
		}
	})
}
