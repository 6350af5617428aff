package render

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Manifest returns an object as it is applied: without status and without empty fields of the server.
func Manifest(object runtime.Object) (map[string]any, error) {
	manifest, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting an object: %w", err)
	}
	delete(manifest, "status")
	claims, _, _ := unstructured.NestedSlice(manifest, "spec", "volumeClaimTemplates")
	for _, claim := range claims {
		delete(claim.(map[string]any), "status")
	}
	if len(claims) > 0 {
		err = unstructured.SetNestedSlice(manifest, claims, "spec", "volumeClaimTemplates")
	}
	return manifest, err
}

// YAML writes objects as documents of one file.
func YAML(objects []runtime.Object) ([]byte, error) {
	var text bytes.Buffer
	for index, object := range objects {
		manifest, err := Manifest(object)
		if err != nil {
			return nil, err
		}
		document, err := yaml.Marshal(manifest)
		if err != nil {
			return nil, fmt.Errorf("writing YAML: %w", err)
		}
		if index > 0 {
			text.WriteString("---\n")
		}
		text.Write(document)
	}
	return text.Bytes(), nil
}
