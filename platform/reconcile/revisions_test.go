package reconcile

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/dunlin-project/dunlin/platform/render"
)

var revisionsOwner = Owner{APIVersion: "apps.roost.dev/v1alpha1", Kind: "App", Namespace: "web", Name: "shop", UID: "uid-1"}

func labelsOfShop() map[string]any {
	return map[string]any{render.LabelApp: "shop", render.LabelManagedBy: render.ManagedBy}
}

// record returns a revision with its content, as the operator wants it.
func record(name, content string) Manifest {
	return Manifest{
		"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": map[string]any{"spec": content},
		"metadata": map[string]any{
			"name": "shop-app-" + name, "namespace": "web",
			"labels": labelsOfShop(),
		},
	}
}

// keepRevision performs the writes for one revision, and returns them.
func keepRevision(t *testing.T, api *memoryAPI, object Manifest) []Write {
	t.Helper()
	var all []Write
	for range 3 {
		input := Input{Owner: revisionsOwner, Desired: []Manifest{object}}
		for _, live := range api.objects {
			input.Live = append(input.Live, live)
		}
		writes := Decide(input).Writes
		if len(writes) == 0 {
			return all
		}
		for _, write := range writes {
			if err := api.write(write); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, writes...)
	}
	t.Fatalf("the writes do not end: %v", all)
	return nil
}

func revisionsOf(api *memoryAPI) map[string]int64 {
	numbers := map[string]int64{}
	for _, object := range api.objects {
		numbers[metadataText(object, "name")] = revisionNumber(object)
	}
	return numbers
}

func TestARevisionThatReturnsIsTheNewest(t *testing.T) {
	api := newMemoryAPI()
	keepRevision(t, api, record("a", "one"))
	keepRevision(t, api, record("b", "two"))
	if found := revisionsOf(api); !reflect.DeepEqual(found, map[string]int64{"shop-app-a": 1, "shop-app-b": 2}) {
		t.Fatalf("%v", found)
	}
	if writes := keepRevision(t, api, record("b", "two")); len(writes) > 0 {
		t.Errorf("the same revision was written again: %v", writes)
	}
	keepRevision(t, api, record("a", "one"))
	if found := revisionsOf(api); !reflect.DeepEqual(found, map[string]int64{"shop-app-a": 3, "shop-app-b": 2}) {
		t.Errorf("%v", found)
	}
}

// Files that were encrypted again have the hash of the old ones, and the API server refuses to change the data.
func TestARevisionKeepsItsFirstRecord(t *testing.T) {
	api := newMemoryAPI()
	keepRevision(t, api, record("a", "one"))
	if writes := keepRevision(t, api, record("a", "one, encrypted anew")); len(writes) > 0 {
		t.Errorf("%v", writes)
	}
	keepRevision(t, api, record("b", "two"))
	keepRevision(t, api, record("a", "one, encrypted anew"))
	for _, object := range api.objects {
		if metadataText(object, "name") == "shop-app-a" && !reflect.DeepEqual(object["data"], map[string]any{"spec": "one"}) {
			t.Errorf("%v", object["data"])
		}
	}
}

func TestTenEarlierRevisionsAreKept(t *testing.T) {
	api := newMemoryAPI()
	for index := range revisionsKept + 1 {
		keepRevision(t, api, record(fmt.Sprint(index), "spec"))
	}
	if found := revisionsOf(api); len(found) != revisionsKept+1 || found["shop-app-0"] != 1 {
		t.Fatalf("%v", found)
	}
	keepRevision(t, api, record("more", "spec"))
	found := revisionsOf(api)
	if _, isThere := found["shop-app-0"]; len(found) != revisionsKept+1 || isThere || found["shop-app-1"] != 2 {
		t.Errorf("%v", found)
	}
}

// A foreign revision with our labels is neither counted nor deleted.
func TestRevisionsOfOthersDoNotCount(t *testing.T) {
	api := newMemoryAPI()
	foreign := record("foreign", "spec")
	foreign["revision"] = int64(40)
	api.put(foreign)
	for index := range revisionsKept + 2 {
		keepRevision(t, api, record(fmt.Sprint(index), "spec"))
	}
	found := revisionsOf(api)
	if found["shop-app-foreign"] != 40 || found["shop-app-11"] != 12 || len(found) != revisionsKept+2 {
		t.Errorf("%v", found)
	}
}

// TestAStalledRolloutEndsWithTheNextSpec uses the status that a Deployment keeps until its controller has seen the new spec.
func TestAStalledRolloutEndsWithTheNextSpec(t *testing.T) {
	stalled := map[string]any{
		"observedGeneration": int64(1),
		"conditions":         []any{map[string]any{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}},
	}
	object := func() Manifest {
		return Manifest{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "shop", "namespace": "web", "labels": labelsOfShop()},
			"spec":     map[string]any{"replicas": int64(1)},
		}
	}
	for generation, reason := range map[int64]string{1: ReasonRolloutStalled, 2: ReasonAsDesired} {
		live := stamp(object(), revisionsOwner)
		live["metadata"].(map[string]any)["generation"] = generation
		live["status"] = stalled
		result := Decide(Input{Owner: revisionsOwner, Desired: []Manifest{object()}, Live: []Manifest{live}})
		if len(result.Writes) > 0 {
			t.Fatalf("%v", result.Writes)
		}
		for _, condition := range result.Conditions {
			if condition.Type == ConditionDegraded && condition.Reason != reason {
				t.Errorf("generation %d: %s, expected %s", generation, condition.Reason, reason)
			}
		}
	}
}
