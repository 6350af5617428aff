package crd_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/crd"
)

// TestThereIsOneVersion fails when a second one is added: then objects of the first have to be converted, and a test has to
// convert them in both directions.
func TestThereIsOneVersion(t *testing.T) {
	entries, err := crd.Files.ReadDir(".")
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, entry := range entries {
		text, err := crd.Files.ReadFile(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		var definition struct {
			Spec struct {
				Versions []struct {
					Name            string
					Served, Storage bool
				}
				Conversion any
			}
		}
		if err := yaml.Unmarshal(text, &definition); err != nil {
			t.Fatal(err)
		}
		spec := definition.Spec
		if len(spec.Versions) != 1 || spec.Versions[0].Name != "v1alpha1" || !spec.Versions[0].Served || !spec.Versions[0].Storage || spec.Conversion != nil {
			t.Errorf("%s: %+v; write a conversion, and a test of it", entry.Name(), spec)
		}
	}
}
