// Package problems contains invalid manifests for the tests of `roost validate`, of the rules in the CRDs, and of an API server.
package problems

import (
	_ "embed"
	"encoding/json"
	"maps"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Row is one change that makes a valid spec invalid: its fields, with null for a removed field, and the problem that they cause.
type Row struct {
	Name    string         `json:"name"`
	Kind    string         `json:"kind"`
	Spec    map[string]any `json:"spec"`
	Path    string         `json:"path"`
	Message string         `json:"message"`
	// Server is the expected response of an API server: same (the same message), refuses, prunes, or none.
	Server string `json:"server"`
}

// Kinds of manifests.
var Kinds = []string{"App", "Dunlin"}

//go:embed problems.json
var table []byte

var validSpecs = map[string]map[string]any{
	"App":    {"image": "shop:1", "ports": []any{map[string]any{"port": 8080}}, "health": map[string]any{"path": "/healthz"}},
	"Dunlin": {"image": "dunlin:1", "keys": map[string]any{"secret": "keys"}},
}

// Rows of the table.
func Rows(t testing.TB) []Row {
	t.Helper()
	var rows []Row
	if err := json.Unmarshal(table, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// Manifest returns a valid manifest with changed fields. A null removes a field, and `metadata.name` sets the object's name. Whole numbers are int64, as
// an API server decodes them.
func Manifest(t testing.TB, kind string, fields map[string]any) map[string]any {
	t.Helper()
	name, spec := "shop", maps.Clone(validSpecs[kind])
	for field, value := range fields {
		switch {
		case field == "metadata.name":
			name = value.(string)
		case value == nil:
			delete(spec, field)
		default:
			spec[field] = value
		}
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "apps.roost.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}
