package proof

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/crd"
)

// server validates as the API server does: the schema first, then the rules.
type server struct {
	structural *schema.Structural
	schema     validation.SchemaCreateValidator
	rules      *cel.Validator
}

func servers(t *testing.T) map[string]server {
	t.Helper()
	found := map[string]server{}
	entries, err := crd.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := crd.Files.ReadFile(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		var versioned apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &versioned); err != nil {
			t.Fatal(err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&versioned)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&versioned.Spec)
		var definition apiextensions.CustomResourceDefinition
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&versioned, &definition, nil); err != nil {
			t.Fatal(err)
		}
		// This is what `kubectl apply` of the definition has to pass, the cost of the rules included.
		definition.Status.StoredVersions = []string{"v1alpha1"}
		if errs := apivalidation.ValidateCustomResourceDefinition(context.Background(), &definition); len(errs) > 0 {
			t.Fatalf("%s: %v", entry.Name(), errs)
		}
		properties := definition.Spec.Validation
		if properties == nil {
			properties = definition.Spec.Versions[0].Schema
		}
		structural, err := schema.NewStructural(properties.OpenAPIV3Schema)
		if err != nil {
			t.Fatal(err)
		}
		schemaValidator, _, err := validation.NewSchemaValidator(properties.OpenAPIV3Schema)
		if err != nil {
			t.Fatal(err)
		}
		rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
		found[definition.Spec.Names.Kind] = server{structural, schemaValidator, rules}
	}
	return found
}

func (server server) validate(object map[string]any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, object, server.schema)
	if len(errs) == 0 {
		errs, _ = server.rules.Validate(context.Background(), nil, server.structural, object, nil, celconfig.RuntimeCELCostBudget)
	}
	return errs
}

type problemRow struct {
	Name    string         `json:"name"`
	Kind    string         `json:"kind"`
	Spec    map[string]any `json:"spec"`
	Path    string         `json:"path"`
	Message string         `json:"message"`
	// Server is same, refuses, prunes or none.
	Server string `json:"server"`
}

func object(t *testing.T, row problemRow) map[string]any {
	t.Helper()
	valid := map[string]string{
		"App":    `{"image": "shop:1", "ports": [{"port": 8080}], "health": {"path": "/healthz"}}`,
		"Dunlin": `{"image": "dunlin:1", "keys": {"secret": "keys"}}`,
	}
	spec := map[string]any{}
	if err := json.Unmarshal([]byte(valid[row.Kind]), &spec); err != nil {
		t.Fatal(err)
	}
	name := "shop"
	for key, value := range row.Spec {
		switch {
		case key == "metadata.name":
			name = value.(string)
		case value == nil:
			delete(spec, key)
		default:
			spec[key] = value
		}
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "apps.roost.dev/v1alpha1", "kind": row.Kind, "metadata": map[string]any{"name": name}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	// The API server reads whole numbers as such.
	if err := utiljson.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestTheServerSaysTheSame holds the sentences of `roost validate` against the API server's own validation.
func TestTheServerSaysTheSame(t *testing.T) {
	text, err := os.ReadFile("../validate/testdata/problems.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []problemRow
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	servers, same := servers(t), 0
	for kind, server := range servers {
		if errs := server.validate(object(t, problemRow{Kind: kind})); len(errs) > 0 {
			t.Errorf("a valid %s: %v", kind, errs)
		}
	}
	for _, row := range rows {
		errs := servers[row.Kind].validate(object(t, row))
		switch row.Server {
		case "same":
			same++
			// The server puts the value before the sentence itself, and has no path for what is in metadata.
			isPath := len(errs) == 1 && (errs[0].Field == row.Path || row.Path == "metadata.name")
			if !isPath || !strings.HasSuffix(row.Message, errs[0].Detail) || len(errs[0].Detail) < len(row.Message)/2 {
				t.Errorf("%s %s: %v\nexpected: %s: %s", row.Kind, row.Name, errs, row.Path, row.Message)
			}
		case "refuses":
			if len(errs) == 0 {
				t.Errorf("%s %s: the server takes it", row.Kind, row.Name)
			}
		case "prunes", "none":
			if len(errs) > 0 {
				t.Errorf("%s %s: the server refuses it, so say so in the table: %v", row.Kind, row.Name, errs)
			}
		default:
			t.Errorf("%s: %q", row.Name, row.Server)
		}
	}
	if same < 80 {
		t.Errorf("%d sentences are the same", same)
	}
}
