package apiserver_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/validate/problems"
)

const (
	filesMin  = 40
	sameMin   = 80
	namespace = "web"
)

// TestARealServer starts one server for all its parts.
func TestARealServer(t *testing.T) {
	server := apiserver.ForTest(t)
	admin, err := client.New(server.Admin, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := apiserver.NewNamespace(t.Context(), admin, namespace); err != nil {
		t.Fatal(err)
	}
	// It leaves the definitions of now.
	if !t.Run("keeps what was written under earlier definitions", func(t *testing.T) { upgrades(t, admin) }) {
		return
	}
	t.Run("takes all golden objects", func(t *testing.T) { takesGoldenObjects(t, admin) })
	t.Run("has schemas to which all golden objects conform", func(t *testing.T) { conforms(t, server.Admin) })
	t.Run("says the same of wrong fields", func(t *testing.T) { saysTheSame(t, admin) })
}

// takesGoldenObjects applies each golden object twice. The second time nothing changes. A pod of each workload passes the
// server's own Pod Security.
func takesGoldenObjects(t *testing.T, admin client.Client) {
	files, err := filepath.Glob("../render/testdata/golden/*.yaml")
	if err != nil || len(files) < filesMin {
		t.Fatalf("%d files, %v", len(files), err)
	}
	objects, pods := 0, 0
	for _, file := range files {
		name := "case-" + strings.TrimSuffix(filepath.Base(file), ".yaml")
		// An object of one case would be changed by the next one.
		if err := apiserver.NewNamespace(t.Context(), admin, name); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(document, &object.Object); err != nil {
				t.Fatal(err)
			}
			object.SetNamespace(name)
			objects++
			first, err := apply(t, admin, object)
			if err != nil {
				t.Errorf("%s: %s/%s: %v", name, object.GetKind(), object.GetName(), err)
				continue
			}
			if object.GetKind() == "PersistentVolumeClaim" {
				// The operator makes it, and never applies it. The server adds the phase to a new one.
				continue
			}
			if second, err := apply(t, admin, object); err != nil || second != first {
				t.Errorf("%s: %s/%s: the second time, version %s became %s, %v", name, object.GetKind(), object.GetName(), first, second, err)
			}
			if pod := podOf(t, object); pod != nil {
				pods++
				if err := admin.Create(t.Context(), pod, client.DryRunAll); err != nil {
					t.Errorf("%s: a pod of %s/%s: %v", name, object.GetKind(), object.GetName(), err)
				}
			}
		}
	}
	t.Logf("%d files, %d objects, %d pods", len(files), objects, pods)
	if pods < filesMin {
		t.Errorf("%d pods", pods)
	}
}

func apply(t *testing.T, admin client.Client, object *unstructured.Unstructured) (string, error) {
	t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	written := object.DeepCopy()
	err = admin.Patch(t.Context(), written, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner("roost"), client.ForceOwnership)
	return written.GetResourceVersion(), err
}

// podOf is a pod as a controller makes it from the object's template, or nil.
func podOf(t *testing.T, object *unstructured.Unstructured) *corev1.Pod {
	t.Helper()
	path := []string{"spec", "template"}
	if object.GetKind() == "CronJob" {
		path = []string{"spec", "jobTemplate", "spec", "template"}
	}
	template, isThere, err := unstructured.NestedMap(object.Object, path...)
	if err != nil || !isThere {
		return nil
	}
	var typed corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &typed); err != nil {
		t.Fatal(err)
	}
	// The controller of StatefulSets adds the volumes.
	claims, _, _ := unstructured.NestedSlice(object.Object, "spec", "volumeClaimTemplates")
	for _, claim := range claims {
		volume, _, _ := unstructured.NestedString(claim.(map[string]any), "metadata", "name")
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume + "-shop-0"}}
		typed.Spec.Volumes = append(typed.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: source})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: object.GetNamespace(), Labels: typed.Labels},
		Spec:       typed.Spec,
	}
}

// saysTheSame holds the sentences of `roost validate` against the answers of the server.
func saysTheSame(t *testing.T, admin client.Client) {
	for _, kind := range problems.Kinds {
		if err := admin.Create(t.Context(), manifestOf(t, kind, nil), client.DryRunAll); err != nil {
			t.Errorf("a valid %s: %v", kind, err)
		}
	}
	same := 0
	for _, row := range problems.Rows(t) {
		err := admin.Create(t.Context(), manifestOf(t, row.Kind, row.Spec), client.DryRunAll)
		switch row.Server {
		case "same":
			same++
			if !isSame(err, row) {
				t.Errorf("%s %s: %v\nexpected: %s: %s", row.Kind, row.Name, err, row.Path, row.Message)
			}
		case "refuses":
			if err == nil {
				t.Errorf("%s %s: the server takes it", row.Kind, row.Name)
			}
		default:
			if err != nil {
				t.Errorf("%s %s: the server refuses it: %v", row.Kind, row.Name, err)
			}
		}
	}
	t.Logf("%d sentences are the same", same)
	if same < sameMin {
		t.Errorf("%d sentences are the same", same)
	}
}

// isSame is whether the only cause has the path and the sentence. The beginning may differ, where the server puts the value
// itself; platform/proof compares it.
func isSame(err error, row problems.Row) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) != 1 {
		return false
	}
	cause := status.Status().Details.Causes[0]
	// The server has no path for what is in metadata.
	isPath := cause.Field == row.Path || row.Path == "metadata.name"
	return isPath && strings.HasSuffix(cause.Message, row.Message[len(row.Message)/2:])
}

func manifestOf(t *testing.T, kind string, fields map[string]any) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: problems.Manifest(t, kind, fields)}
	object.SetNamespace(namespace)
	return object
}
