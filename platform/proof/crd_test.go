package proof

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/crd"
	"github.com/dunlin-project/dunlin/platform/validate/problems"
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

// TestTheServerSaysTheSame holds the sentences of `roost validate` against the API server's own validation.
func TestTheServerSaysTheSame(t *testing.T) {
	servers, same := servers(t), 0
	for kind, server := range servers {
		if errs := server.validate(problems.Manifest(t, kind, nil)); len(errs) > 0 {
			t.Errorf("a valid %s: %v", kind, errs)
		}
	}
	for _, row := range problems.Rows(t) {
		errs := servers[row.Kind].validate(problems.Manifest(t, row.Kind, row.Spec))
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
