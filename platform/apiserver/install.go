package apiserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/crd"
)

// Install writes the CustomResourceDefinitions, and returns when the server serves them.
func Install(ctx context.Context, writer client.Client) error {
	return eachDefinition(func(definition *unstructured.Unstructured) error {
		if err := writer.Create(ctx, definition); err != nil {
			return err
		}
		return waitUntilServed(ctx, writer, definition)
	})
}

// WaitForInstall returns when the server serves the CustomResourceDefinitions, which others write.
func WaitForInstall(ctx context.Context, reader client.Client) error {
	return eachDefinition(func(definition *unstructured.Unstructured) error { return waitUntilServed(ctx, reader, definition) })
}

func eachDefinition(do func(*unstructured.Unstructured) error) error {
	entries, err := crd.Files.ReadDir(".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, err := crd.Files.ReadFile(entry.Name())
		if err != nil {
			return err
		}
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &definition.Object); err != nil {
			return err
		}
		if err := do(definition); err != nil {
			return err
		}
	}
	return nil
}

func waitUntilServed(ctx context.Context, reader client.Client, definition *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, readySecondsMax*time.Second)
	defer cancel()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "listKind")
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apps.roost.dev/v1alpha1")
	list.SetKind(kind)
	for {
		err := reader.Get(ctx, types.NamespacedName{Name: definition.GetName()}, definition)
		if err == nil && isEstablished(definition) {
			// The definition is established shortly before the server serves the kind.
			if err = reader.List(ctx, list); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not served: %v", definition.GetName(), err)
		case <-pause.C:
		}
	}
}

func isEstablished(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, element := range conditions {
		condition, _ := element.(map[string]any)
		if condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}

// NewNamespace creates a namespace that admits only pods with the restricted profile of Pod Security.
func NewNamespace(ctx context.Context, writer client.Client, name string) error {
	namespace := &corev1.Namespace{}
	namespace.Name = name
	namespace.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	return writer.Create(ctx, namespace)
}
