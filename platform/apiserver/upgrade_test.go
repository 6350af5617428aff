package apiserver_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/apiserver"
)

const (
	upgraded = "upgraded"
	// servedWithin bounds the time until the server serves a changed definition.
	servedWithin = 2 * time.Minute
	latest       = "shop:latest"
)

// upgrades writes objects under earlier definitions, and then the definitions of now: what is stored stays as it is and can be
// changed. A definition that is stricter than the one before does not lock what it would refuse.
func upgrades(t *testing.T, admin client.Client) {
	if err := apiserver.NewNamespace(t.Context(), admin, upgraded); err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitionsOf(t, "../crd/testdata/first") {
		// The first definitions, without the rule that refuses the tag latest.
		withoutRule(t, definition, "endsWith(':latest')")
		applyDefinition(t, admin, definition)
	}
	waitUntilServed(t, admin, "looser definitions", true)
	before := storeCases(t, admin)
	loose := appOf("loose", latest)
	if err := admin.Create(t.Context(), loose); err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitionsOf(t, "../crd") {
		applyDefinition(t, admin, definition)
	}
	waitUntilServed(t, admin, "the definitions of now", false)
	for _, object := range before {
		changeStored(t, admin, object)
	}
	ratchets(t, admin, loose)
	t.Logf("%d objects of the first definitions are as they were", len(before))
}

func definitionsOf(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%s: %v, %v", folder, files, err)
	}
	var found []*unstructured.Unstructured
	for _, file := range files {
		object := readObject(t, file)
		found = append(found, object)
	}
	return found
}

func readObject(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// withoutRule takes rules out of a schema whose expression has the text.
func withoutRule(t *testing.T, definition *unstructured.Unstructured, text string) {
	t.Helper()
	removed := 0
	var walk func(value any) any
	walk = func(value any) any {
		switch value := value.(type) {
		case map[string]any:
			for name, field := range value {
				value[name] = walk(field)
			}
		case []any:
			var kept []any
			for _, element := range value {
				rule, _ := element.(map[string]any)
				if expression, _ := rule["rule"].(string); strings.Contains(expression, text) {
					removed++
					continue
				}
				kept = append(kept, walk(element))
			}
			return kept
		}
		return value
	}
	walk(definition.Object)
	if removed == 0 {
		t.Fatalf("%s has no such rule", definition.GetName())
	}
}

func applyDefinition(t *testing.T, admin client.Client, definition *unstructured.Unstructured) {
	t.Helper()
	if _, err := apply(t, admin, definition); err != nil {
		t.Fatalf("%s: %v", definition.GetName(), err)
	}
}

func appOf(name, image string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps.roost.dev/v1alpha1", "kind": "App",
		"spec": map[string]any{
			"image": image, "ports": []any{map[string]any{"port": int64(8080)}}, "health": map[string]any{"path": "/healthz"},
		},
	}}
	object.SetNamespace(upgraded)
	object.SetName(name)
	return object
}

// waitUntilServed asks whether the server takes the tag latest.
func waitUntilServed(t *testing.T, admin client.Client, what string, takesLatest bool) {
	t.Helper()
	isServed := func(kind string) bool {
		err := admin.Create(t.Context(), manifestOf(t, kind, map[string]any{"image": latest}), client.DryRunAll)
		return err == nil && takesLatest || apierrors.IsInvalid(err) && !takesLatest
	}
	for deadline := time.Now().Add(servedWithin); !isServed("App") || !isServed("Dunlin"); {
		if time.Now().After(deadline) {
			t.Fatalf("not served in %s: %s", servedWithin, what)
		}
		time.Sleep(50 * time.Millisecond) // between two looks
	}
}

// storeCases creates each case of the golden files that the definitions take.
func storeCases(t *testing.T, admin client.Client) []*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob("../render/testdata/cases/*.yaml")
	if err != nil || len(files) < filesMin {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	var stored []*unstructured.Unstructured
	for index, file := range files {
		object := readObject(t, file)
		object.SetNamespace(upgraded)
		object.SetName(fmt.Sprintf("case-%d", index))
		if err := admin.Create(t.Context(), object); err != nil {
			t.Logf("the first definitions refuse %s: %v", filepath.Base(file), err)
			continue
		}
		stored = append(stored, object)
	}
	if len(stored) < filesMin {
		t.Fatalf("%d objects", len(stored))
	}
	return stored
}

// changeStored changes something beside the spec, and applies the spec once more.
func changeStored(t *testing.T, admin client.Client, before *unstructured.Unstructured) {
	t.Helper()
	name := before.GetName()
	now := before.DeepCopy()
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(before), now); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(now.Object["spec"], before.Object["spec"]) {
		t.Errorf("%s: %v became %v", name, before.Object["spec"], now.Object["spec"])
	}
	now.SetLabels(map[string]string{"team": "web"})
	if err := admin.Update(t.Context(), now); err != nil {
		t.Errorf("%s: a new label: %v", name, err)
	}
	fresh := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": before.GetAPIVersion(), "kind": before.GetKind(), "spec": before.Object["spec"],
	}}
	fresh.SetNamespace(upgraded)
	fresh.SetName(name)
	if _, err := apply(t, admin, fresh); err != nil {
		t.Errorf("%s: applied once more: %v", name, err)
	}
}

// ratchets changes an app that the definition of now would refuse.
func ratchets(t *testing.T, admin client.Client, loose *unstructured.Unstructured) {
	t.Helper()
	for _, row := range []struct {
		field   string
		value   any
		isTaken bool
	}{
		{"replicas", int64(2), true}, {"image", "other:latest", false}, {"image", "shop:1", true}, {"image", latest, false},
	} {
		now := loose.DeepCopy()
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(loose), now); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedField(now.Object, row.value, "spec", row.field); err != nil {
			t.Fatal(err)
		}
		err := admin.Update(t.Context(), now)
		if row.isTaken && err != nil || !row.isTaken && (err == nil || !strings.Contains(err.Error(), "has the tag latest")) {
			t.Errorf("%s: %v: %v", row.field, row.value, err)
		}
	}
}
